//! Access tokens in the store: their names, their number, and what is left of one that cannot be read.

use std::sync::Arc;

use futures_executor::block_on;
use windlass_core::{Millis, Name};
use windlass_engine::{
    ACCESS_RANDOM_BYTES, ACCESS_TOKENS_MAX, AccessRole, AccessSecret, AccessToken, AccessTokenFault,
    EngineError,
};
use windlass_store::{
    Change, Queries as _, RecordChange, RecordKind, Store as _, StoreError,
    memory::{MemorySink, SharedStore},
};

use crate::world::World;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn secret(number: usize) -> AccessSecret {
    let mut random = [7; ACCESS_RANDOM_BYTES];
    random[..8].copy_from_slice(&(number as u64).to_be_bytes());
    AccessSecret::new(&random)
}

fn token(world: &World, of: &str, number: usize) -> AccessToken {
    AccessToken::new(name(of), &secret(number), AccessRole::Viewer, world.now().wall)
}

fn create(world: &World, of: &str, number: usize) -> Result<AccessToken, EngineError> {
    world.drive(world.engine.create_access_token(token(world, of, number), world.now()))
}

fn names(world: &World) -> Vec<String> {
    let tokens = world.drive(world.engine.access_tokens()).unwrap();
    tokens.iter().map(|token| token.name.to_string()).collect()
}

#[test]
fn a_name_and_an_id_belong_to_one_token() {
    let world = World::open(&MemorySink::new([7; 32]));
    let made = create(&world, "ci", 1).unwrap();
    let listed = world.drive(world.engine.access_tokens()).unwrap();
    assert_eq!(listed, std::slice::from_ref(&made));
    assert_eq!(create(&world, "ci", 2), Err(EngineError::AccessTokenExists(name("ci"))));
    assert_eq!(create(&world, "other", 1), Err(EngineError::AccessTokenExists(name("other"))));
    let expired = AccessToken { expires_at: Some(world.now().wall), ..token(&world, "old", 3) };
    let refused = world.drive(world.engine.create_access_token(expired, world.now()));
    assert_eq!(refused, Err(EngineError::AccessTokenFault(AccessTokenFault::ExpiresAtOnce)));
    assert_eq!(world.drive(world.engine.revoke_access_token(&name("ci"))), Ok(made));
    let unknown = EngineError::UnknownAccessToken(name("ci"));
    assert_eq!(world.drive(world.engine.revoke_access_token(&name("ci"))), Err(unknown));
    assert!(create(&world, "ci", 1).is_ok());
}

#[test]
fn a_store_has_no_more_tokens_than_servers_keep_in_memory() {
    let world = World::open(&MemorySink::new([7; 32]));
    for number in 0..ACCESS_TOKENS_MAX {
        create(&world, &format!("t-{number}"), number).unwrap();
    }
    assert_eq!(create(&world, "more", ACCESS_TOKENS_MAX), Err(EngineError::TooManyAccessTokens));
    world.drive(world.engine.revoke_access_token(&name("t-0"))).unwrap();
    assert!(create(&world, "more", ACCESS_TOKENS_MAX).is_ok());
}

#[test]
fn the_last_use_is_that_of_the_token_that_was_used() {
    let world = World::open(&MemorySink::new([7; 32]));
    let first = create(&world, "ci", 1).unwrap();
    let used_at = || world.drive(world.engine.access_tokens()).unwrap()[0].used_at;
    let later = first.created_at + Millis(1000);
    let note = |id, at| world.drive(world.engine.note_access_use(&name("ci"), id, at)).unwrap();
    note(first.id, later);
    assert_eq!(used_at(), Some(later));
    // Another server has noted an earlier use.
    note(first.id, first.created_at);
    assert_eq!(used_at(), Some(later));
    world.drive(world.engine.revoke_access_token(&name("ci"))).unwrap();
    note(first.id, later);
    assert_eq!(names(&world), [] as [&str; 0], "a use does not bring a revoked token back");
    create(&world, "ci", 2).unwrap();
    note(first.id, later);
    assert_eq!(used_at(), None, "the first token was used, not the second one of its name");
    let other = AccessToken { role: AccessRole::Admin, ..token(&world, "ci", 3) };
    world.drive(world.engine.replace_access_token(other.clone(), world.now())).unwrap();
    assert_eq!(world.drive(world.engine.access_tokens()).unwrap(), [other]);
}

#[test]
fn a_token_that_cannot_be_read_is_of_no_use_and_can_be_revoked() {
    let store = SharedStore::new([7; 32]);
    let world = World::over(Arc::new(store.clone()), 1);
    create(&world, "good", 1).unwrap();
    let body = Arc::from([2, b'{']);
    let bad = RecordChange::create(RecordKind::AccessToken, name("bad"), body, world.now().wall);
    block_on(store.commit(vec![Change::Record(bad)])).unwrap();
    assert_eq!(names(&world), ["good"]);
    assert_eq!(create(&world, "bad", 2), Err(EngineError::AccessTokenExists(name("bad"))));
    let revoked = world.drive(world.engine.revoke_access_token(&name("bad")));
    assert!(matches!(revoked, Err(EngineError::Store(StoreError::Damaged(_)))), "{revoked:?}");
    assert!(create(&world, "bad", 2).is_ok());
    assert_eq!(block_on(store.records(RecordKind::AccessToken, None, 10)).unwrap().len(), 2);
}
