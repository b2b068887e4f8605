//! The nodes of a leader latch.

use std::time::Duration;

use tokio::time::timeout;

use super::{
    Seen,
    connection::Reply,
    session::Session,
    wire::{Reader, Stat, Writer, error, op},
};
use crate::{CoordinatorError, Leader, stored};

/// What Apache Curator calls the nodes of its leader latch, before the number.
const LATCH: &str = "latch-";

/// The flags of a node that ends with its session and gets a number.
const EPHEMERAL_SEQUENTIAL: i32 = 3;

/// The flags of a node that ends when it has no children any more.
const CONTAINER: i32 = 4;

/// All permissions.
const ALL: i32 = 31;

/// How often a folder is created that others delete meanwhile.
const TRIES_MAX: usize = 3;

/// The latch of a name, by one session.
pub(super) struct Latch<'s> {
    session: &'s Session,
    /// The path of the folder of its nodes.
    folder: &'s str,
}

/// A node of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Its name within the folder.
    pub(super) name: String,
    /// The lowest one leads.
    pub(super) number: i64,
}

impl Node {
    /// A child of the folder, if it is a candidate's.
    fn read(name: &str) -> Option<Self> {
        let (_, number) = name.rsplit_once(LATCH)?;
        Some(Self { name: name.to_owned(), number: number.parse().ok()? })
    }
}

impl<'s> Latch<'s> {
    pub(super) fn new(session: &'s Session, folder: &'s str) -> Self {
        Self { session, folder }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// The candidates in the order of their numbers.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, CoordinatorError> {
        Ok(self.children(false).await?.unwrap_or_default())
    }

    /// The same, or none if there is no folder. A watch reports changes of the list, if there is a folder.
    async fn children(&self, watches: bool) -> Result<Option<Vec<Node>>, CoordinatorError> {
        let body = Writer::default().string(self.folder).bool(watches).bytes();
        let reply = self.session.read(op::GET_CHILDREN, &body).await?;
        if reply.error == error::NO_NODE {
            return Ok(None);
        }
        let mut nodes = read_names(&succeeded(&reply)?.body).ok_or_else(cut_short)?;
        nodes.sort_by_key(|node| node.number);
        Ok(Some(nodes))
    }

    /// Creates a node whose name begins with this mark, and returns it with its czxid.
    pub(super) async fn enter(&self, mark: &str, stored: &str) -> Result<(Node, i64), CoordinatorError> {
        // An earlier request may have arrived whose answer did not.
        if let Some(node) = self.nodes().await?.into_iter().find(|node| node.name.starts_with(mark)) {
            let stat = self.stat(&node.name, false).await?;
            if let Some(stat) = stat.filter(|stat| stat.owner == self.session.number()) {
                return Ok((node, stat.czxid));
            }
        }
        let path = self.path(&format!("{mark}{LATCH}"));
        let body = self.creation(&path, stored, EPHEMERAL_SEQUENTIAL);
        for _ in 0..TRIES_MAX {
            let reply = self.session.write(op::CREATE, &body).await?;
            if reply.error == error::NO_NODE {
                self.create_folder().await?;
                continue;
            }
            let mut reader = Reader::new(&succeeded(&reply)?.body);
            let (path, stat) = (reader.string(), Stat::read(&mut reader));
            let name = path.and_then(|path| Node::read(path.rsplit_once('/')?.1));
            return name.zip(stat).map(|(node, stat)| (node, stat.czxid)).ok_or_else(cut_short);
        }
        Err(CoordinatorError::Unavailable("the folder of a name is deleted again and again".to_owned()))
    }

    /// Creates the folder and those that it is in. They are deleted by the server when they are empty.
    async fn create_folder(&self) -> Result<(), CoordinatorError> {
        let ends = self.folder.char_indices().skip(1).filter(|(_, c)| *c == '/').map(|(end, _)| end);
        for end in ends.chain([self.folder.len()]) {
            let body = self.creation(&self.folder[..end], "", CONTAINER);
            let reply = self.session.write(op::CREATE_CONTAINER, &body).await?;
            if ![error::NODE_EXISTS, error::NO_NODE].contains(&reply.error) {
                succeeded(&reply)?;
            }
        }
        Ok(())
    }

    fn creation(&self, path: &str, data: &str, flags: i32) -> Vec<u8> {
        let (scheme, id) = if self.session.is_logged_in() { ("auth", "") } else { ("world", "anyone") };
        let node = Writer::default().string(path).string(data);
        node.int(1).int(ALL).string(scheme).string(id).int(flags).bytes()
    }

    /// What is kept about a candidate's node, if it exists. A watch reports changes of the node.
    pub(super) async fn stat(&self, name: &str, watches: bool) -> Result<Option<Stat>, CoordinatorError> {
        let body = Writer::default().string(&self.path(name)).bool(watches).bytes();
        let reply = self.session.read(op::EXISTS, &body).await?;
        if reply.error == error::NO_NODE {
            return Ok(None);
        }
        Stat::read(&mut Reader::new(&succeeded(&reply)?.body)).map(Some).ok_or_else(cut_short)
    }

    /// Confirms by a write that a node exists. It changes nothing, so no watch of any candidate is used up.
    pub(super) async fn confirm(&self, name: &str) -> Result<(), CoordinatorError> {
        const ANY_VERSION: i32 = -1;
        let check =
            Writer::default().int(op::CHECK).bool(false).int(-1).string(&self.path(name)).int(ANY_VERSION);
        let body = check.int(-1).bool(true).int(-1).bytes();
        let reply = self.session.write(op::MULTI, &body).await?;
        let mut reader = Reader::new(&reply.body);
        let (kind, _, error) = (reader.int(), reader.bool(), reader.int());
        if reply.error == error::NO_NODE || (kind == Some(-1) && error == Some(error::NO_NODE)) {
            return Err(CoordinatorError::Lost("the node of the candidate was deleted".to_owned()));
        }
        succeeded(&reply)?;
        if kind == Some(op::CHECK) { Ok(()) } else { Err(failed(error.unwrap_or_default())) }
    }

    /// Deletes a node.
    pub(super) async fn leave(&self, name: &str) -> Result<(), CoordinatorError> {
        let body = Writer::default().string(&self.path(name)).int(-1).bytes();
        let reply = self.session.write(op::DELETE, &body).await?;
        if reply.error != error::NO_NODE {
            succeeded(&reply)?;
        }
        Ok(())
    }

    /// Waits until a node changes, for up to `wait`. It may return early: look again.
    pub(super) async fn change(&self, name: &str, wait: Duration) -> Result<(), CoordinatorError> {
        let mut events = self.session.connection().await?.events();
        if self.stat(name, true).await?.is_some() {
            // The time is over when nothing has changed.
            let _ = timeout(wait, events.changed()).await;
        }
        Ok(())
    }

    /// The leader, at once or when it is another one than an observer has seen.
    pub(super) async fn observe(&self, seen: Option<Seen>) -> Result<Option<Leader>, CoordinatorError> {
        let mut events = self.session.connection().await?.events();
        // A server may be behind.
        let body = Writer::default().string(self.folder).bytes();
        self.session.read(op::SYNC, &body).await?;
        let leader = self.leader().await?;
        let Some(seen) = seen else { return Ok(leader) };
        if leader.as_ref().map(|leader| leader.fence) == seen.fence {
            let _ = timeout(seen.wait, events.changed()).await;
            return self.leader().await;
        }
        Ok(leader)
    }

    /// The leader. Watches report when it is another one.
    async fn leader(&self) -> Result<Option<Leader>, CoordinatorError> {
        for node in self.watched_nodes().await? {
            let body = Writer::default().string(&self.path(&node.name)).bool(false).bytes();
            let reply = self.session.read(op::GET_DATA, &body).await?;
            if reply.error == error::NO_NODE {
                continue;
            }
            let mut reader = Reader::new(&succeeded(&reply)?.body);
            let (data, stat) = (reader.buffer(), Stat::read(&mut reader));
            let (data, stat) = data.zip(stat).ok_or_else(cut_short)?;
            return Ok(Some(stored::decode(data, fence(stat.czxid))));
        }
        Ok(None)
    }

    /// The candidates, with a watch for changes: of the list, or for the creation of the folder.
    async fn watched_nodes(&self) -> Result<Vec<Node>, CoordinatorError> {
        let folder = Writer::default().string(self.folder).bool(true).bytes();
        for _ in 0..TRIES_MAX {
            if let Some(nodes) = self.children(true).await? {
                return Ok(nodes);
            }
            if self.session.read(op::EXISTS, &folder).await?.error == error::NO_NODE {
                return Ok(Vec::new());
            }
            // It was created between the two: that watch does not report its children.
        }
        Err(CoordinatorError::Unavailable("the folder of a name is created again and again".to_owned()))
    }
}

/// The fence of a node's czxid, which is never negative.
pub(super) fn fence(czxid: i64) -> u64 {
    u64::try_from(czxid).unwrap_or(0)
}

fn read_names(body: &[u8]) -> Option<Vec<Node>> {
    let mut reader = Reader::new(body);
    let count = reader.int()?;
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.extend(Node::read(reader.string()?));
    }
    Some(nodes)
}

fn succeeded(reply: &Reply) -> Result<&Reply, CoordinatorError> {
    if reply.error == 0 { Ok(reply) } else { Err(failed(reply.error)) }
}

fn failed(error: i32) -> CoordinatorError {
    CoordinatorError::Unavailable(format!("ZooKeeper answers with error {error}"))
}

fn cut_short() -> CoordinatorError {
    CoordinatorError::Unavailable("an answer is cut short".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_known_by_their_names() {
        let node = Node::read("_c_8f2e-latch-0000000012").unwrap();
        assert_eq!((node.number, node.name.as_str()), (12, "_c_8f2e-latch-0000000012"));
        assert_eq!(Node::read("latch-2147483647").map(|node| node.number), Some(2_147_483_647));
        // The server's counter goes on below zero.
        assert_eq!(Node::read("latch--2147483647").map(|node| node.number), Some(-2_147_483_647));
        for other in ["inner", "latch-", "latch-x", "lock-0000000001"] {
            assert_eq!(Node::read(other), None, "{other}");
        }
    }

    #[test]
    fn names_that_are_cut_short_are_refused() {
        let names = Writer::default().int(2).string("latch-0000000001").string("inner").bytes();
        assert_eq!(read_names(&names).map(|nodes| nodes.len()), Some(1));
        assert_eq!(read_names(&names[..names.len() - 1]), None);
    }
}
