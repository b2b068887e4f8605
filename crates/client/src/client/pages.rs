//! Lists that the server gives in pages, put together to a whole.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use windlass_api::List;

use super::Client;
use crate::Error;

/// How many pages a list may have. At the least a server gives on a page that is 100,000 items: who needs more asks
/// page by page. It is there for servers whose pages never end.
const PAGES_MAX: usize = 1000;

/// What is asked for beside the path, by name.
type Query<'a> = [(&'a str, Cow<'a, str>)];

impl Client {
    /// A whole list: follows `next` to its end, with the same filter on each page.
    pub(super) async fn all_pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &Query<'_>,
    ) -> Result<List<T>, Error> {
        let first = self.get_with(path, filter).await?;
        self.remaining_pages(path, filter, first).await
    }

    /// The whole list that begins with the page `first`.
    pub(super) async fn remaining_pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &Query<'_>,
        first: List<T>,
    ) -> Result<List<T>, Error> {
        let mut list = first;
        for _ in 1..PAGES_MAX {
            let Some(cursor) = list.next.take() else { return Ok(list) };
            let mut query = filter.to_vec();
            query.push(("cursor", cursor.as_str().into()));
            let page: List<T> = self.get_with(path, &query).await?;
            if page.next.as_ref() == Some(&cursor) {
                return Err(
                    self.endless(path, format!("the page of the cursor {cursor:?} is followed by itself"))
                );
            }
            list.items.extend(page.items);
            list.next = page.next;
        }
        match list.next {
            None => Ok(list),
            Some(_) => Err(self.endless(path, format!("the list goes on after {PAGES_MAX} pages"))),
        }
    }

    fn endless(&self, path: &[&str], detail: String) -> Error {
        Error::Malformed {
            server: self.server().to_owned(),
            call: format!("GET /{}", path.join("/")),
            detail,
        }
    }
}
