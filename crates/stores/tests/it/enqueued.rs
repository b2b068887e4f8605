//! What applications enqueued, as every database that they can share keeps it: where it waits, what is settled, and how
//! tables of before get there.

use windlass_conformance::block_on;
use windlass_core::{Millis, TaskId, Timestamp};
use windlass_store::{Enqueued, Now, ServerId, Service, Settlement, Store, StoreError};

/// A database as it is asked.
pub(crate) struct Shop<'d> {
    pub(crate) store: &'d dyn Store,
    pub(crate) ask: &'d dyn Fn(&str) -> String,
    /// A statement that enqueues a document.
    pub(crate) submit: &'d dyn Fn(&str) -> String,
}

impl Shop<'_> {
    fn enqueue(&self, number: usize) {
        (self.ask)(&(self.submit)(&format!(r#"{{"flow": "f", "params": {{"n": {number}}}}}"#)));
    }

    fn waiting(&self, limit: usize) -> Vec<Enqueued> {
        block_on(self.store.enqueued().unwrap().waiting(limit, 0)).unwrap()
    }

    fn settle(&self, settled: Vec<(TaskId, Settlement)>) -> usize {
        block_on(self.store.enqueued().unwrap().settle(settled, None)).unwrap()
    }

    /// What waits is returned in its order until it is settled, and never again.
    pub(crate) fn waits_until_it_is_settled(&self) {
        (0..5).for_each(|number| self.enqueue(number));
        let waiting = self.waiting(4);
        assert_eq!(waiting.len(), 4, "{waiting:?}");
        assert_eq!(self.waiting(4), waiting, "nothing was settled");
        for (number, enqueued) in waiting.iter().enumerate() {
            assert!(enqueued.task.contains(&format!("\"n\": {number}")), "{enqueued:?}");
            assert_eq!((enqueued.refusals, enqueued.id.0 >> 76 & 0xf), (0, 7), "a UUID of version 7");
        }
        let behind = block_on(self.store.enqueued().unwrap().waiting(4, waiting[1].place)).unwrap();
        assert_eq!((behind.len(), &behind[..2]), (3, &waiting[2..]), "behind the second");
        let ids: Vec<TaskId> = waiting.iter().map(|enqueued| enqueued.id).collect();
        let settled = vec![
            (ids[0], Settlement::Accepted),
            (ids[1], Settlement::Refused("there is no flow f, \0 and 'so' on".into())),
            (ids[2], Settlement::StandsFor(ids[0])),
            (TaskId(1), Settlement::Accepted),
        ];
        assert_eq!(self.settle(settled.clone()), 3, "one was never there");
        assert_eq!(self.waiting(4)[0], waiting[3]);
        assert_eq!((self.ask)("select count(*) from windlass_enqueued"), "4");
        let refused = (self.ask)("select refused from windlass_enqueued where refused is not null");
        assert!(refused.starts_with("there is no flow f"), "{refused}");
        // As when the answer was lost.
        self.settle(vec![settled[0].clone()]);

        (self.ask)("update windlass_enqueued set refused = null where refused is not null");
        let again = &self.waiting(4)[0];
        assert_eq!((again.id, again.refusals), (ids[1], 1));

        let age = |column| {
            (self.ask)(&format!("update windlass_enqueued set {column} = {column} - interval '2' day"));
        };
        let stand = |place: usize| {
            self.settle(vec![(ids[place], Settlement::StandsFor(ids[0]))]);
            (self.ask)("select count(*) from windlass_enqueued where stands_for is not null")
        };
        age("enqueued_at");
        assert_eq!(stand(3), "2", "the day begins when it is known which task it became");
        age("stood_for_at");
        assert_eq!(stand(1), "1", "a day is over for the others");
    }

    /// Only the server that leads this service settles anything.
    pub(crate) fn is_settled_by_its_leader(&self) {
        self.enqueue(0);
        let (service, length) = (Service::Enqueuing, Millis(1_000));
        let lease = |server, mono| {
            let now = Now { wall: Timestamp(0), mono: Millis(mono) };
            let lease = block_on(self.store.lease(service, ServerId(server), length, now)).unwrap();
            assert_eq!(lease.holder, ServerId(server));
            Some(lease.leadership(service))
        };
        let id = self.waiting(1)[0].id;
        let settle =
            |settlement, led| block_on(self.store.enqueued().unwrap().settle(vec![(id, settlement)], led));
        let (one, other) = (lease(1, 0), lease(2, 1_000));
        let each = [Settlement::Accepted, Settlement::Refused("no".into()), Settlement::StandsFor(TaskId(1))];
        for settlement in each {
            assert_eq!(settle(settlement, one), Err(StoreError::LeaseLost));
            assert_eq!(self.waiting(1).len(), 1);
        }
        assert_eq!(settle(Settlement::Accepted, other), Ok(1));
        assert!(self.waiting(1).is_empty());
    }

    /// No more is read at once than fits in memory well; `submit` enqueues what is nearly 2 MiB.
    pub(crate) fn comes_in_parts(&self) {
        (0..7).for_each(|number| self.enqueue(number));
        let waiting = self.waiting(100);
        assert_eq!(waiting.len(), 5, "8 MiB and no more than one task beyond");
        self.settle(waiting.iter().map(|enqueued| (enqueued.id, Settlement::Accepted)).collect());
        assert_eq!(self.waiting(100).len(), 2);
    }
}
