//! Lists.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One page of a list, newest first unless said otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The page. It may hold fewer than asked for, even none, while `next` is there.
    pub items: Vec<T>,
    /// Give this as `cursor` to get the next page; null at the end.
    pub next: Option<String>,
}
