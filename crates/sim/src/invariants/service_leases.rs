//! One server at a time leads a service: a lease is taken over only after it has ended and under a higher fence, and a
//! server whose lease another one has taken writes nothing as the leader.

use std::collections::BTreeMap;

use windlass_core::Millis;
use windlass_store::{Leadership, Service, ServiceLease};

use super::Invariant;
use crate::{
    judge::{Seen, Violation},
    truth::Truth,
    world::World,
};

#[derive(Default)]
pub(super) struct ServiceLeases {
    /// The last lease that was given of each service.
    given: BTreeMap<Service, ServiceLease>,
}

impl Invariant for ServiceLeases {
    fn see(&mut self, seen: &Seen, _: &Truth, _: &World) -> Result<(), Violation> {
        match seen {
            Seen::Leased { service, lease, at } => self.given_to(*service, *lease, *at),
            Seen::Left(server) => {
                for lease in self.given.values_mut().filter(|lease| lease.holder == *server) {
                    lease.until = Millis(0);
                }
                Ok(())
            }
            Seen::Led(led) => self.written_by(led),
            _ => Ok(()),
        }
    }
}

impl ServiceLeases {
    fn given_to(&mut self, service: Service, lease: ServiceLease, at: Millis) -> Result<(), Violation> {
        let Some(before) = self.given.insert(service, lease) else { return Ok(()) };
        let name = service.name();
        if before.holder == lease.holder && before.fence == lease.fence {
            return Ok(());
        }
        if lease.fence <= before.fence {
            return Err(violation(format!("{name}: {lease:?} does not have a higher fence than {before:?}")));
        }
        if at < before.until {
            return Err(violation(format!(
                "{name}: {lease:?} was given at {at:?}, before the end of {before:?}"
            )));
        }
        Ok(())
    }

    fn written_by(&self, led: &Leadership) -> Result<(), Violation> {
        let lease = self.given.get(&led.service);
        if lease.is_some_and(|lease| lease.leadership(led.service) == *led) {
            return Ok(());
        }
        Err(violation(format!("{led:?} has written, and the last lease given is {lease:?}")))
    }
}

fn violation(message: String) -> Violation {
    Violation::new("service leases", message)
}
