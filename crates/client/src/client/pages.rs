//! Reads all pages of a list.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use windlass_api::List;

use super::Client;
use crate::Error;

/// The most pages of a list: at the smallest page size 100,000 items. Larger lists must be read page by page.
/// The limit protects against servers whose pages never end.
const PAGES_MAX: usize = 1000;

/// The most items of a page.
const PAGE_ITEMS_MAX: usize = 1000;

/// The parameters of the query, by name.
type Query<'a> = [(&'a str, Cow<'a, str>)];

impl Client {
    /// Reads a whole list: follows `next` to the end, with the same filter on each page.
    pub(super) async fn all_pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &Query<'_>,
    ) -> Result<List<T>, Error> {
        let first = self.get_with(path, filter).await?;
        self.remaining_pages(path, filter, first).await
    }

    /// Reads the rest of the list that starts with the page `first`.
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
                return Err(self.endless(
                    path,
                    format!("the page of the cursor {cursor:?} refers to itself as the next one"),
                ));
            }
            list.items.extend(page.items);
            list.next = page.next;
        }
        match list.next {
            None => Ok(list),
            Some(_) => Err(self.endless(path, format!("the list continues after {PAGES_MAX} pages"))),
        }
    }

    /// Reads at most `limit` items of a list whose pages may have fewer items than asked for.
    pub(super) async fn newest<T: DeserializeOwned>(
        &self,
        path: &[&str],
        filter: &[(&str, String)],
        limit: usize,
    ) -> Result<List<T>, Error> {
        let mut list = List { items: Vec::new(), next: None };
        for _ in 0..PAGES_MAX {
            let room = (limit - list.items.len()).min(PAGE_ITEMS_MAX);
            let mut query: Vec<(&str, Cow<'_, str>)> =
                filter.iter().map(|(name, value)| (*name, value.as_str().into())).collect();
            query.push(("limit", room.to_string().into()));
            query.extend(list.next.take().map(|cursor| ("cursor", cursor.into())));
            let page: List<T> = self.get_with(path, &query).await?;
            list.items.extend(page.items);
            list.next = page.next;
            if list.next.is_none() || list.items.len() >= limit {
                return Ok(list);
            }
        }
        Err(self.endless(path, format!("the list continues after {PAGES_MAX} pages")))
    }

    fn endless(&self, path: &[&str], detail: String) -> Error {
        Error::Malformed {
            server: self.server().to_owned(),
            call: format!("GET /{}", path.join("/")),
            detail,
        }
    }
}
