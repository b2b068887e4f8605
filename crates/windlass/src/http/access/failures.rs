//! How many tokens were refused, by client address: an address that tries many must wait.
//!
//! A valid token is always accepted, whatever others behind the same address have tried: nobody can lock others out. The limit
//! keeps guessing from being worth an answer each time, and from filling the log. It does not protect the secrets, which have
//! 256 random bits.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Mutex, PoisonError},
};

use windlass_core::Millis;

/// Refused tokens of an address in a span before it must wait.
const FAILURES_MAX: u32 = 20;

/// That span.
const FAILURES_SPAN: Millis = Millis::from_secs(60);

/// Addresses that are counted. When there are more at once, the further ones are counted together.
const ADDRESSES_MAX: usize = 10_000;

/// The address under which the further ones are counted.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The refused tokens of each address.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<IpAddr, Window>>);

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Millis,
    count: u32,
}

/// What a refused token is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// That it is refused; this is the first one of this address for a while.
    First,
    /// That it is refused.
    Refused,
    /// That the client is to wait for this number of seconds.
    Wait {
        /// How long.
        seconds: u16,
        /// Whether this is the first one that is to wait.
        is_first: bool,
    },
}

impl Window {
    fn is_over(&self, now: Millis) -> bool {
        now.0.saturating_sub(self.began.0) >= FAILURES_SPAN.0
    }
}

impl Failures {
    /// Counts a refused token.
    pub(super) fn count(&self, client: IpAddr, now: Millis) -> Verdict {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = network(client);
        if windows.len() >= ADDRESSES_MAX && !windows.contains_key(&client) {
            windows.retain(|_, window| !window.is_over(now));
            if windows.len() >= ADDRESSES_MAX {
                client = OTHERS;
            }
        }
        let window = windows.entry(client).or_insert(Window { began: now, count: 0 });
        if window.is_over(now) {
            *window = Window { began: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        match window.count {
            1 => Verdict::First,
            ..=FAILURES_MAX => Verdict::Refused,
            count => {
                let left = (window.began.0 + FAILURES_SPAN.0).saturating_sub(now.0);
                let seconds = u16::try_from(left.div_ceil(1000)).unwrap_or(u16::MAX).max(1);
                Verdict::Wait { seconds, is_first: count == FAILURES_MAX + 1 }
            }
        }
    }
}

/// The network of a client: who has an IPv6 address mostly has 2⁶⁴ of them.
fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    #[test]
    fn an_address_with_many_failures_waits_until_its_span_is_over() {
        let failures = Failures::default();
        let count = |seconds| failures.count(address(1), Millis::from_secs(seconds));
        assert_eq!(count(100), Verdict::First);
        for _ in 1..FAILURES_MAX {
            assert_eq!(count(110), Verdict::Refused);
        }
        assert_eq!(count(120), Verdict::Wait { seconds: 40, is_first: true });
        assert_eq!(count(159), Verdict::Wait { seconds: 1, is_first: false });
        assert_eq!(failures.count(address(2), Millis::from_secs(120)), Verdict::First, "another address");
        assert_eq!(count(160), Verdict::First);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one() {
        let failures = Failures::default();
        let count = |text: &str| failures.count(text.parse().unwrap(), Millis(0));
        assert_eq!(count("2001:db8::1"), Verdict::First);
        assert_eq!(count("2001:db8::ffff:2"), Verdict::Refused);
        assert_eq!(count("2001:db8:0:1::1"), Verdict::First);
    }

    #[test]
    fn no_number_of_addresses_takes_more_memory() {
        let failures = Failures::default();
        let most = u32::try_from(ADDRESSES_MAX).unwrap();
        for n in 0..3 * most {
            failures.count(address(n), Millis(0));
        }
        let len = || failures.0.lock().unwrap().len();
        assert_eq!(len(), ADDRESSES_MAX + 1);
        assert!(
            matches!(failures.count(address(9 * most), Millis(1)), Verdict::Wait { .. }),
            "counted together"
        );
        assert_eq!(failures.count(address(5), Millis(1)), Verdict::Refused, "counted for itself");
        failures.count(address(9 * most), FAILURES_SPAN);
        assert_eq!(len(), 1, "windows that are over make room");
    }
}
