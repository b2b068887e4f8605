//! The key-value store of Consul: lists that wait, and changes that compare.

use std::time::{Duration, Instant};

use windlass_coordinators::{Campaign, Consul, Coordinator as _, Kv, KvChange, KvCommitted, KvEntry};
use windlass_testkit::Consul as Server;

use crate::servers::LEASE;

/// Far more than anything here takes.
const WAIT: Duration = Duration::from_secs(20);

fn consul(server: &Server) -> Consul {
    // Nobody listens on the first address.
    Consul::new(&format!("consul://127.0.0.1:1,127.0.0.1:{}", server.port())).unwrap()
}

async fn set(kv: &Kv, key: &str, value: &str) -> KvEntry {
    assert_eq!(kv.commit(&[KvChange::Set { key, value, flags: 7 }]).await, Ok(KvCommitted::Done));
    kv.read(key).await.unwrap().unwrap()
}

#[tokio::test]
async fn changes_are_refused_when_somebody_was_faster() {
    let Some(server) = Server::shared().unwrap() else { return };
    let kv = consul(server).kv().unwrap();
    let first = set(&kv, "kv-changes/ä b?", "1").await;
    assert_eq!((first.value.as_slice(), first.flags), (b"1".as_slice(), 7));
    let second = set(&kv, &first.key, "2").await;
    assert_eq!(second.create_index, first.create_index);
    let replace = async |entry| kv.commit(&[KvChange::Replace { entry, value: "3" }]).await.unwrap();
    assert_eq!(replace(&first).await, KvCommitted::Refused(0));
    assert_eq!(replace(&second).await, KvCommitted::Done);
    let third = kv.read(&first.key).await.unwrap().unwrap();
    assert_eq!((third.value.as_slice(), third.flags), (b"3".as_slice(), 7));
    // All or nothing.
    let moved = KvChange::Set { key: "kv-changes/moved", value: "3", flags: 7 };
    let of = |entry| [KvChange::Delete { entry }, moved];
    assert_eq!(kv.commit(&of(&second)).await, Ok(KvCommitted::Refused(0)));
    assert_eq!(kv.read("kv-changes/moved").await, Ok(None));
    assert_eq!(kv.commit(&of(&third)).await, Ok(KvCommitted::Done));
    assert_eq!(kv.read(&third.key).await, Ok(None));
    let list = kv.list("kv-changes/", 0, WAIT).await.unwrap();
    assert_eq!(list.entries.iter().map(|entry| &*entry.key).collect::<Vec<_>>(), ["kv-changes/moved"]);
    let again = set(&kv, &first.key, "4").await;
    assert!(again.create_index > first.create_index, "another key of the same name");
}

#[tokio::test]
async fn a_change_can_need_a_leadership() {
    let Some(server) = Server::shared().unwrap() else { return };
    let consul = consul(server);
    let kv = consul.kv().unwrap();
    let entry = set(&kv, "kv-led/a", "1").await;
    let campaign = Campaign::new("kv-leader", "a", LEASE);
    let leadership = consul.campaign(&campaign).await.unwrap();
    let led = async |entry: &KvEntry, value: &str| {
        let check = KvChange::Check { key: "kv-leader", modify_index: leadership.fence() };
        kv.commit(&[check, KvChange::Replace { entry, value }]).await.unwrap()
    };
    assert_eq!(led(&entry, "2").await, KvCommitted::Done);
    assert_eq!(led(&entry, "3").await, KvCommitted::Refused(1));
    let entry = kv.read("kv-led/a").await.unwrap().unwrap();
    leadership.resign().await.unwrap();
    assert_eq!(led(&entry, "3").await, KvCommitted::Refused(0));
}

#[tokio::test]
async fn a_list_waits_for_a_change() {
    let Some(server) = Server::shared().unwrap() else { return };
    let kv = consul(server).kv().unwrap();
    let old = set(&kv, "kv-waits/a", "1").await;
    let mut list = kv.list("kv-waits/", 0, WAIT).await.unwrap();
    assert_eq!(list.entries, std::slice::from_ref(&old));
    let changed = async {
        // Consul may answer before something has changed.
        while list.entries == std::slice::from_ref(&old) {
            list = kv.list("kv-waits/", list.index, WAIT).await.unwrap();
        }
        list.entries
    };
    let change = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        set(&kv, "kv-waits/a", "2").await
    };
    let began = Instant::now();
    let (changed, new) = tokio::join!(changed, change);
    assert_eq!(changed, [new]);
    assert!(began.elapsed() < WAIT, "it is woken by the change");
    let index = kv.list("kv-waits/", 0, WAIT).await.unwrap().index;
    let same = kv.list("kv-waits/", index, Duration::from_millis(100)).await.unwrap();
    assert_eq!(same.entries, changed);
}
