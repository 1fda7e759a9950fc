"""Times of IEEE 802.11 DCF: slots, spaces, windows and how long a frame is on the air.

All times are whole nanoseconds, so that stations which count down together meet in the same instant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

SECOND = 1_000_000_000
MICROSECOND = 1000


@dataclass(frozen=True, slots=True)
class RadioTiming:
    """A radio's times, of DSSS as ns-2 and most studies of ad hoc networks have it.

    Attributes:
        slot, sifs, difs: nanoseconds.
        preamble: nanoseconds before each frame.
        header_bytes: of the frame's MAC header and check sum.
        acknowledgement_bits: after its preamble, at the basic rate.
        bits_per_second: of header and payload.
        basic_bits_per_second: of acknowledgements.
        propagation: nanoseconds, counted once a frame.
        least_window, largest_window: back-offs are drawn from [0, window).
        retries: a frame is given up after so many repetitions.
    """

    slot: int = 20 * MICROSECOND
    sifs: int = 10 * MICROSECOND
    difs: int = 50 * MICROSECOND
    preamble: int = 192 * MICROSECOND
    header_bytes: int = 34
    acknowledgement_bits: int = 112
    bits_per_second: float = 2_000_000.0
    basic_bits_per_second: float = 1_000_000.0
    propagation: int = MICROSECOND
    least_window: int = 32
    largest_window: int = 1024
    retries: int = 7

    def narrowed(self, share: float) -> RadioTiming:
        """The radio in a channel of so much less bandwidth, its clock slowed down as that of IEEE 802.11's half-clocked channels.

        Rates fall and preamble, slots and spaces grow by the same factor; propagation is as fast as ever. So n channels of a
        share of 1 / n carry together what the whole one does.

        Args:
            share: of the bandwidth, in (0, 1].
        """
        return replace(
            self,
            slot=round(self.slot / share),
            sifs=round(self.sifs / share),
            difs=round(self.difs / share),
            preamble=round(self.preamble / share),
            bits_per_second=self.bits_per_second * share,
            basic_bits_per_second=self.basic_bits_per_second * share,
        )

    def airtime(self, octets: int) -> int:
        """Nanoseconds of a frame with so many bytes behind the MAC header."""
        bits = 8 * (self.header_bytes + octets)
        return self.preamble + self.propagation + round(bits * SECOND / self.bits_per_second)

    @property
    def acknowledgement(self) -> int:
        """Nanoseconds from the end of a frame to the end of its acknowledgement."""
        bits = self.acknowledgement_bits
        return (
            self.sifs + self.preamble + self.propagation + round(bits * SECOND / self.basic_bits_per_second)
        )
