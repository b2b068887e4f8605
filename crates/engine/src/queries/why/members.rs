//! Why a fanned-out step waits: its items, and the first open one that no worker has claimed.

use windlass_core::ActKey;

use crate::{
    EngineError,
    queries::why::{Reason, Why, acts::Look},
};

impl Look<'_> {
    pub(super) async fn why_members(&self, key: ActKey) -> Result<Option<Why>, EngineError> {
        let Some(members) = &self.loaded.task.state.steps[key.step].members else { return Ok(None) };
        let side = members.side(key.direction);
        let open = || side.open.iter().map(|number| key.of_member(*number));
        let first = open().find(|key| !self.claims.contains_key(key)).or_else(|| open().next());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Some(Why::Members {
            total: members.total(),
            done: side.satisfied,
            failed: count(side.failed.size()),
            under_way: count(side.open.size()),
            first: match first {
                Some(first) => self.why_member(first).await?.map(Box::new),
                None => None,
            },
        }))
    }

    async fn why_member(&self, key: ActKey) -> Result<Option<Reason>, EngineError> {
        // An item is not fanned out itself, so the recursion ends here.
        let why = Box::pin(self.why(key)).await?;
        match why {
            Some(why) => Ok(Some(self.reason(key, why).await?)),
            None => Ok(None),
        }
    }
}
