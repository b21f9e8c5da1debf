"""Which internet addresses a tool may talk to."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_TRANSLATED = ip_network("64:ff9b::/96")  # IPv4 behind an IPv6 translator


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks such as ``10.0.0.0/8``; a single address is a network too.

    Raises:
        ValueError: one is none.
    """
    return tuple(ip_network(text, strict=False) for text in texts)


def may_reach(address: str, allowed: Iterable[Network]) -> bool:
    """Whether an address is everybody's, and not one of this machine or of the network around it."""
    parsed = ip_address(address.partition("%")[0])
    meant = _inner(parsed)
    if any(each in network for network in allowed for each in (parsed, *meant)):
        return True
    return all(each.is_global and not each.is_multicast for each in meant or (parsed,))


def _inner(address: Address) -> tuple[Address, ...]:
    """The IPv4 addresses that an IPv6 address may stand for."""
    if isinstance(address, IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _TRANSLATED or int(address) >> 32 == 0:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(each for each in found if each is not None)
