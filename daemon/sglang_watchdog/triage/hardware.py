"""What this machine tells: the SGLang that is installed and the GPUs. All may be absent; that is no error."""

from importlib.metadata import PackageNotFoundError, version


def installed_sglang() -> str:
    """The release of the installed SGLang, or ""."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return ""


def local_gpu_count() -> int | None:
    """GPUs of this machine as NVML counts them, or None where there is no NVML."""
    try:
        import pynvml  # noqa: PLC0415 - a machine without the library is no error
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def local_gpu() -> tuple[str, float | None]:
    """(product name, GiB of memory) of the first GPU that NVML shows, or ("", None)."""
    try:
        import pynvml  # noqa: PLC0415 - a machine without the library is no error
    except ImportError:
        return "", None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return "", None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        name = pynvml.nvmlDeviceGetName(handle)
        memory = float(pynvml.nvmlDeviceGetMemoryInfo(handle).total) / 2**30
    except pynvml.NVMLError:
        return "", None
    finally:
        pynvml.nvmlShutdown()
    return name.decode() if isinstance(name, bytes) else str(name), memory
