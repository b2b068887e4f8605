//! Secret parameters are references wherever they come from: parameters are refused, and a result is a failure.

use crate::{
    Failure, Json, Rejection, Task,
    planted::{Bug, is_planted},
    rules::fail::DATA_CODE,
};

/// Refuses parameters of which a secret one is not a reference.
pub(super) fn check(task: &Task, params: Option<&Json>) -> Result<(), Rejection> {
    let params = params.filter(|_| !is_planted(Bug::PlainSecretKept));
    params.map_or(Ok(()), |params| task.flow.check_secret_params(params))
}

/// The failure of an execution whose result has a secret that is not a reference: the result is not recorded.
pub(super) fn failure(task: &Task, result: Option<&Json>) -> Option<Failure> {
    let refused = check(task, result).err()?;
    Some(Failure::new(&format!("the result was dropped: {refused}"), DATA_CODE, false))
}
