"""PCI addresses in one form, so that a kernel message finds its GPU."""

import re

# "PCI:0000:41:00" and "PCI:0000:41:00.0" (NVRM: Xid), "0000:41:00.0" (AER, sysfs), "00000000:41:00.0" (NVML)
_ADDRESS = re.compile(r"\b(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?(?![0-9a-fA-F])")


def pci_address(text: str) -> str | None:
    """Return the first PCI address in `text` as "0000:41:00.0", or None.

    >>> pci_address("NVRM: Xid (PCI:0000:41:00): 79, pid=1234, GPU has fallen off the bus.")
    '0000:41:00.0'
    """
    found = _ADDRESS.search(text)
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{bus.lower()}:{device.lower()}.{function or 0}"
