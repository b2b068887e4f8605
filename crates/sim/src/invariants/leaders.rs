//! One process at a time may act as the leader of a name, on its own clock, and later leaders have higher fences.

use std::collections::BTreeMap;

use super::Invariant;
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

/// What leaders believe: under which fence they lead, and until when they may act.
#[derive(Default)]
pub(super) struct Leaders {
    terms: BTreeMap<u128, (u64, u64)>,
}

impl Invariant for Leaders {
    fn see(&mut self, seen: &Seen, _: &Truth, world: &World) -> Result<(), Violation> {
        match *seen {
            Seen::LeadsNoMore { number } => {
                if let Some((_, until)) = self.terms.get_mut(&number) {
                    *until = 0;
                }
                Ok(())
            }
            Seen::Leads { number, fence, until } => self.leads(number, fence, until, world.now()),
            _ => Ok(()),
        }
    }
}

impl Leaders {
    fn leads(&mut self, number: u128, fence: u64, until: u64, now: u64) -> Result<(), Violation> {
        let is_new = self.terms.insert(number, (fence, until)).is_none();
        for (other, (earlier, other_until)) in self.terms.iter().filter(|(other, _)| **other != number) {
            if *other_until > now && until > now {
                return Err(violation(format!(
                    "{number:x} leads at {now} under the fence {fence}, and {other:x} may act until {other_until} under {earlier}"
                )));
            }
            if is_new && *earlier >= fence {
                return Err(violation(format!("the fence {fence} comes after {earlier}")));
            }
        }
        Ok(())
    }
}

fn violation(message: String) -> Violation {
    Violation::new("leaders", message)
}
