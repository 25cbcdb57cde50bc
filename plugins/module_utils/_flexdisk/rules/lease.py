# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lease of a group of VMs: its encoding, and who gets it. Only one run at a time may work on a group.

A lease is a property of a pool's container. It expires, because a killed run does not release it. All times are seconds
by the clock of that host, so the clocks of controllers do not matter.
"""

from __future__ import annotations

import re
import typing as t

from ..model.desired import LeaseDeclaration
from . import identity
from .property_text import decode_object, encode_object

SHORTEST, LONGEST = 10, 86400  # seconds until a lease expires
HOLDER_LIMIT = 200
CLOCK_SLACK = 60  # seconds that a clock may be set back without a word about it

HOLD, REPORT = "held", "reported"  # what a task wants of a lease; anything else releases it
FREE, MINE, EXPIRED, HELD, UNREADABLE = "free", "mine", "expired", "held", "unreadable"

_PREFIX = "lease."
_CAPITAL = re.compile("[A-Z]")
_ESCAPED = re.compile(":([a-z])")


class Lease(t.NamedTuple):
    """A lease as it is stored."""

    token: str
    holder: str
    # When the run took it.
    since: int
    # When the run last renewed it.
    renewed: int
    ttl: int

    @property
    def expires(self) -> int:
        """The first second in which any run may take it."""
        return self.renewed + self.ttl


class Decision(t.NamedTuple):
    """The result of a request for a lease."""

    # Who has the lease. With a code: why it is refused.
    msg: str
    # The lease afterwards.
    lease: t.Optional[Lease] = None
    # The lease before.
    previous: t.Optional[Lease] = None
    # The property gets another value.
    writes: bool = False
    # Another run than before has the lease, or none.
    changed: bool = False
    # The code of a refusal.
    code: str = ""
    warning: str = ""


def is_group(name: str) -> bool:
    """Whether a group can have this name. The same rule as for names of VMs."""
    return bool(identity.VM_NAME.match(name))


def is_holder(text: str) -> bool:
    """Whether a holder can have this name."""
    return 1 <= len(text) <= HOLDER_LIMIT and text.isprintable()


def lease_property(group: str) -> str:
    """Return the name of the property, without our prefix. A capital becomes a colon and a small letter."""
    return _PREFIX + _CAPITAL.sub(lambda match: ":" + match.group().lower(), group)


def group_of(name: str) -> str:
    """Return the group in the name of a property, "" if it is not a lease."""
    group = _ESCAPED.sub(lambda match: match.group(1).upper(), name[len(_PREFIX) :])
    return group if name.startswith(_PREFIX) and is_group(group) and lease_property(group) == name else ""


def encode(lease: Lease) -> str:
    """Return the value of the property."""
    since, renewed = identity.render_time(lease.since), identity.render_time(lease.renewed)
    return encode_object("the lease", dict(lease._asdict(), since=since, renewed=renewed))


def decode(value: str) -> t.Optional[Lease]:
    """Return the lease, None for anything that this collection would not have written."""
    try:
        data = decode_object(value)
        lease = Lease(**dict(data, since=_seconds(data["since"]), renewed=_seconds(data["renewed"])))
        return lease if _valid(lease) else None
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def _seconds(text: str) -> int:
    if not identity.decode_time(text):
        raise ValueError(text)
    return identity.seconds_of(text)


def _valid(lease: Lease) -> bool:
    return (
        identity.is_uuid(lease.token)
        and is_holder(lease.holder)
        and isinstance(lease.ttl, int)
        and not isinstance(lease.ttl, bool)
        and SHORTEST <= lease.ttl <= LONGEST
        and bool(identity.render_time(lease.expires))
    )


def standing(value: str, token: str, now: int) -> str:
    """Return what the value of the property means to the run with this token. "" means that there is no lease.

    The run that took the lease last keeps it even after it has expired, until another run takes it. If the clock is set
    back, a lease lasts longer, never shorter: two runs at once would be worse than one that waits.
    """
    lease = decode(value)
    if not value:
        return FREE
    if lease is None:
        return UNREADABLE
    if lease.token == token:
        return MINE
    return EXPIRED if now >= lease.expires else HELD


def decide(value: str, wanted: LeaseDeclaration, now: int, clear: str) -> Decision:
    """Decide about a request for the lease. clear: the command that removes a lease that cannot be read."""
    how, lease = standing(value, wanted.token, now), decode(value)
    if not wanted.hold:
        return _released(how, lease, wanted, now, value)
    if how == UNREADABLE and not wanted.take_over:
        text = f"{_unreadable(wanted.group, value)}; take_over: true replaces it, and '{clear}' removes it"
        return Decision(text, code="LeaseUnreadable")
    if how == HELD and lease is not None and not wanted.take_over:
        return Decision(_refused(lease, wanted, now), lease, lease, code="InUse")
    if wanted.renew and how != MINE:
        return Decision(_lost(lease, wanted, now), lease, lease, code="LeaseLost")
    return _held(how, lease, wanted, now)


def _held(how: str, lease: t.Optional[Lease], wanted: LeaseDeclaration, now: int) -> Decision:
    """Decide for a run that asks to hold the lease."""
    mine = how == MINE and lease is not None
    since = lease.since if mine and lease is not None else now
    taken = Lease(wanted.token, wanted.holder, since, now, wanted.ttl)
    text = f"{wanted.group}: {taken.holder} has the lease until {identity.render_time(taken.expires)}"
    if how == UNREADABLE:
        text += ", in place of one that could not be read"
    elif lease is not None and not mine:
        text += f"; before, {lease.holder} had it, {_renewed(lease, now)}, {_expires(lease, now)}"
    return Decision(text, taken, lease, writes=True, changed=not mine)


def _released(how: str, lease: t.Optional[Lease], wanted: LeaseDeclaration, now: int, value: str) -> Decision:
    """Release the lease. It is no error if the run does not have it, so that a cleanup can always be called."""
    if how == MINE and lease is not None:
        text = f"{wanted.group}: {lease.holder} has released the lease"
        return Decision(text, None, lease, writes=True, changed=True)
    if how == UNREADABLE:
        text = _unreadable(wanted.group, value)
        return Decision(text, warning=f"not released: {text}")
    if how == HELD and lease is not None:
        text = f"{wanted.group}: {_at_work(lease, now)}"
        return Decision(text, lease, lease, warning=f"not released, this run does not have the lease: {text}")
    return Decision(f"{wanted.group}: nobody has the lease", lease, lease)


def _unreadable(group: str, value: str) -> str:
    size = len(value.encode("utf-8", "replace"))
    return f"{group}: the lease is {size} bytes that this collection has not written, {value!r:.60}"


def _refused(lease: Lease, wanted: LeaseDeclaration, now: int) -> str:
    lost = "this run has lost the lease, " if wanted.renew else ""
    return f"{wanted.group}: {lost}{_at_work(lease, now)}. With take_over: true this run takes it all the same"


def _lost(lease: t.Optional[Lease], wanted: LeaseDeclaration, now: int) -> str:
    who = "nobody has it now"
    if lease is not None:
        who += f"; {lease.holder} had it last, {_renewed(lease, now)}, {_expires(lease, now)}"
    return f"{wanted.group}: this run has lost the lease, and {who}. Without renew: true this run takes it"


def _at_work(lease: Lease, now: int) -> str:
    since = identity.render_time(lease.since)
    return f"{lease.holder} has the lease since {since}, {_renewed(lease, now)}, {_expires(lease, now)}"


def _renewed(lease: Lease, now: int) -> str:
    ago = now - lease.renewed
    if ago >= -CLOCK_SLACK:
        return f"renewed {max(0, ago)} s ago"
    renewed = identity.render_time(lease.renewed)
    return f"renewed at {renewed}, which is {-ago} s from now: the clock of the host was set back"


def _expires(lease: Lease, now: int) -> str:
    word = "expires" if now < lease.expires else "expired"
    return f"{word} at {identity.render_time(lease.expires)}"


def seen(value: str, wanted: LeaseDeclaration, now: int) -> t.Dict[str, t.Any]:
    """Return the lease in a pool as results show it to a run that looks for it. value: that of the property."""
    how, lease = standing(value, wanted.token, now), decode(value)
    text = _unreadable(wanted.group, value) if lease is None else f"{wanted.group}: {_at_work(lease, now)}"
    return {"standing": how, "msg": text, "lease": result(lease)}


def place_of(group: str, guids: t.Mapping[t.Tuple[str, str], int]) -> t.Tuple[str, str]:
    """Return the host and the pool for the lease of a group that has none yet.

    guids: the guid of each pool that could have it. The choice depends on the group and these guids only, so all runs
    agree on it, whatever their inventories call the hosts. The names of hosts decide only between pools with the same
    guid.
    """
    return min(guids, key=lambda place: (identity.uuid_for("lease", group, guids[place]), place))


def result(lease: t.Optional[Lease]) -> t.Optional[t.Dict[str, t.Any]]:
    """Return the lease as results show it, None for none."""
    if lease is None:
        return None
    times = {key: identity.render_time(value) for key, value in _times(lease)}
    return {"token": lease.token, "holder": lease.holder, "ttl": lease.ttl, **times}


def reported(name: str, value: str, now: int) -> t.Optional[t.Dict[str, t.Any]]:
    """Return a lease for the report on all leases; None if the property is not the lease of a group."""
    group, lease = group_of(name), decode(value)
    if not group:
        return None
    if lease is None:
        return {"group": group, "readable": False}
    times = {key: identity.render_time(seconds) for key, seconds in _times(lease)}
    return {
        "group": group,
        "readable": True,
        "token": lease.token,
        "holder": lease.holder,
        **times,
        "expired": now >= lease.expires,
    }


def _times(lease: Lease) -> t.Tuple[t.Tuple[str, int], ...]:
    return ("since", lease.since), ("renewed", lease.renewed), ("expires", lease.expires)
