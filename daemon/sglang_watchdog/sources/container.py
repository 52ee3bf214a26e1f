"""Finds the log files of containers: docker's json-file and the pod logs of Kubernetes. The files are tailed like any
other.
"""

import errno
import glob
import json
import os

DOCKER_ROOT = "/var/lib/docker"
POD_LOG_ROOT = "/var/log/pods"


class ContainerUnknown(OSError):
    """No such container, or no right to look; the text says what was looked for and where."""


def docker_log(name: str, root: str = DOCKER_ROOT) -> str:
    """Return the json-file log of the container with this name or beginning of an id, the newest if several had the
    name.

    Raises: ContainerUnknown: none, its log driver is not json-file, or the directory is not ours to read (it belongs to
    root).
    """
    directory = os.path.join(root, "containers")
    found: list[tuple[str, str]] = []
    try:
        ids = os.listdir(directory)
    except OSError as error:
        # ENXIO: not to be taken for a log that is late
        number = errno.ENXIO if error.errno == errno.ENOENT else error.errno
        text = f"docker:{name}: {directory}: {error.strerror}; run as root, or pipe: docker logs -f {name} 2>&1 | sglang-watchdog run -"
        raise ContainerUnknown(number, text) from error
    for each in ids:
        config = _config(os.path.join(directory, each, "config.v2.json"))
        if each.startswith(name) or str(config.get("Name", "")).lstrip("/") == name:
            log = str(config.get("LogPath") or os.path.join(directory, each, f"{each}-json.log"))
            # Under another root (a host directory mounted into our container) the recorded path does not hold.
            found.append((str(config.get("Created", "")), os.path.join(directory, each, os.path.basename(log))))
    if not found:
        raise ContainerUnknown(2, f"docker:{name}: no container of this name or id in {directory} (docker ps -a lists them)")
    return max(found)[1]


def _config(path: str) -> dict[str, object]:
    try:
        with open(path, encoding="utf-8") as file:
            read = json.load(file)
    except (OSError, ValueError):
        return {}  # being removed, or not ours: the id alone may still match
    return read if isinstance(read, dict) else {}


def pod_log_pattern(specification: str, root: str = POD_LOG_ROOT) -> str:
    """Return the glob of the log files for "namespace/pod/container"; pod names match by their beginning.

    The kubelet names them NAMESPACE_POD_UID/CONTAINER/RESTARTS.log and rotates 0.log to 0.log.20260219-101500, the
    older ones packed.

    Raises:
        ContainerUnknown: not of the form namespace/pod/container.
    """
    parts = specification.split("/")
    if len(parts) != 3 or not all(parts):
        raise ContainerUnknown(22, f"cri:{specification}: expected cri:NAMESPACE/POD/CONTAINER")
    namespace, pod, container = (glob.escape(part) for part in parts)
    return os.path.join(root, f"{namespace}_{pod}*_*", container, "*.log")
