//! What a rollback is given.

use windlass_core::{ActKey, Json, Task};

use crate::story::play;

fn key(task: &Task, act: &str) -> ActKey {
    let (act, member) = act
        .split_once('[')
        .map_or((act, 0), |(act, rest)| (act, rest.trim_end_matches(']').parse().unwrap()));
    let step = task.flow.step_index(act.trim_start_matches('~')).unwrap();
    let key = if act.starts_with('~') { ActKey::rollback(step) } else { ActKey::forward(step) };
    key.of_member(member)
}

fn given(task: &Task, act: &str) -> String {
    task.params_for(key(task, act)).to_string()
}

fn returned(task: &Task, act: &str) -> String {
    task.done_by(key(task, act)).map(Json::to_string).unwrap_or_default()
}

/// Both steps return an `id`; then the third one fails for good.
fn clash(settings: &str) -> Task {
    let story = format!(
        r#"
        flow vm > disk > net
        {settings}
        params {{"zone":"north"}}
        input {{"size":1}}
        accept
        ok vm {{"id":"vm-1"}}
        ok disk {{"id":"disk-9","size":2}}
        final net boom
        ok ~net {{"size":3}}
        ok ~disk {{"id":"gone"}}
    "#
    );
    play(&story).task
}

#[test]
fn results_of_later_steps_do_not_change_what_a_rollback_is_given() {
    let task = clash("");
    for step in ["vm", "disk", "net"] {
        assert_eq!(given(&task, &format!("~{step}")), given(&task, step), "{step}");
    }
    assert_eq!(given(&task, "~vm"), r#"{"zone":"north","size":1}"#);
    assert_eq!(given(&task, "~disk"), r#"{"zone":"north","size":1,"id":"vm-1"}"#);
    assert_eq!(
        (returned(&task, "~vm"), returned(&task, "~disk")),
        (r#"{"id":"vm-1"}"#.to_owned(), r#"{"id":"disk-9","size":2}"#.to_owned())
    );
}

#[test]
fn a_flow_stored_before_finds_its_own_result_among_the_parameters() {
    let task = clash("rollback_params step_and_result");
    assert_eq!(given(&task, "~vm"), r#"{"zone":"north","size":1,"id":"vm-1"}"#);
    assert_eq!(given(&task, "~disk"), r#"{"zone":"north","size":2,"id":"disk-9"}"#);
}

#[test]
fn steps_of_the_classic_catalogue_share_their_parameters() {
    let task = clash("rollback_params shared");
    assert_eq!(given(&task, "~vm"), r#"{"zone":"north","size":3,"id":"gone"}"#);
}

#[test]
fn what_an_operator_gave_a_step_its_rollback_is_given_as_well() {
    let task = play(
        r#"
        flow a > b
        on_failure hold
        input {"size":1,"name":"n"}
        accept
        final a boom
        resolve a retry {"size":2}
        ok a {"size":5}
        final b boom
        resolve b rollback
    "#,
    )
    .task;
    assert_eq!(
        (given(&task, "a"), given(&task, "~a")),
        (r#"{"size":2,"name":"n"}"#.to_owned(), r#"{"size":2,"name":"n"}"#.to_owned())
    );
}

#[test]
fn a_rollback_of_an_item_is_given_its_own_input_and_its_own_result() {
    let story = |settings: &str| {
        let story = format!(
            r#"
            flow copy > c
            copy: each files
            {settings}
            input {{"files":["x","y"],"to":"disk"}}
            accept
            ok copy[1] {{"id":"one","to":"tape","item":"z"}}
            ok copy[2] {{"id":"two"}}
            final c boom
            ok ~c {{}}
        "#
        );
        play(&story).task
    };
    let task = story("");
    assert_eq!(given(&task, "~copy[1]"), r#"{"to":"disk","item":"x","index":0}"#);
    assert_eq!(given(&task, "~copy[1]"), given(&task, "copy[1]"));
    assert_eq!(returned(&task, "~copy[1]"), r#"{"id":"one","to":"tape","item":"z"}"#);
    assert_eq!(returned(&task, "~copy[2]"), r#"{"id":"two"}"#);
    let task = story("rollback_params step_and_result");
    assert_eq!(given(&task, "~copy[1]"), r#"{"to":"tape","item":"x","index":0,"id":"one"}"#);
}
