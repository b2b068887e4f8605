//! What the expressions of a transition may take together.

use windlass_core::{
    ActState, Command, DATA_CODE, EVALUATION_STEPS_PER_TRANSITION_MAX, Each, Ending, Expression, Flow, Input,
    Json, Name, OnFailure, Outcome, Phase, Rejection, Resolution, StepDefinition, Timestamp, Wakeup,
};

use crate::{
    story::action,
    world::{START, World},
};

/// When a task of these tests begins that does not begin at once.
const LATER: Timestamp = Timestamp(START.0 + 10);

/// An expression that takes most of what a single one may, over [`bomb_params`].
const BOMB: &str = "l.all(a, l.all(b, a >= 0))";

const ACCEPT: Command = Command::Accept { done: Vec::new(), overrides_unique: false, by: None };

fn bomb_params() -> Json {
    Json::parse(&format!(r#"{{"l":[{}]}}"#, vec!["1"; 300].join(","))).unwrap()
}

fn step(index: usize, when: &str) -> StepDefinition {
    StepDefinition {
        when: Some(Expression::compile(when).unwrap()),
        ..StepDefinition::new(Name::new(&format!("s{index}")).unwrap(), action("m", "c"), Vec::new())
    }
}

/// 255 steps that wait for none, each with this condition.
fn conditions(when: &str) -> Flow {
    Flow::new(Name::new("f").unwrap(), (0..255).map(|index| step(index, when)).collect())
}

fn world(flow: Flow, params: Json, at: Option<Timestamp>) -> World {
    World::new(flow, Input { at, ..Input::new(params, Timestamp(0)) })
}

#[test]
fn a_single_bomb_is_below_the_limit_of_an_expression() {
    assert_eq!(Expression::compile(BOMB).unwrap().holds(&bomb_params()), Ok(true));
}

#[test]
fn a_task_whose_conditions_take_too_long_together_is_refused() {
    let mut world = world(conditions(BOMB), bomb_params(), None);
    let refused = world.apply(&ACCEPT).unwrap_err();
    assert_eq!(refused, Rejection::TooMuchToEvaluate);
    assert_eq!(
        refused.to_string(),
        "the expressions of the flow take more than 2000000 steps together with these parameters: submit shorter \
         lists and strings, or let the flow evaluate fewer expressions at its start"
    );
    assert_eq!(world.task.state.events, 0, "nothing has happened");
}

#[test]
fn conditions_of_ordinary_size_are_far_below_it() {
    let items = vec![r#"{"kind":"disk","size":10}"#; 50].join(",");
    let params = Json::parse(&format!(r#"{{"items":[{items}],"region":"eu"}}"#)).unwrap();
    let flow = conditions("region == 'eu' && items.exists(item, item.kind == 'vm' || item.size > 9)");
    let transition = world(flow, params, None).apply(&ACCEPT).unwrap();
    assert!(transition.evaluation_steps > 255 * 100, "it counts: {}", transition.evaluation_steps);
    assert!(transition.evaluation_steps < EVALUATION_STEPS_PER_TRANSITION_MAX / 10);
}

#[test]
fn what_expressions_take_is_counted_and_nothing_else() {
    let flow = Flow::new(Name::new("f").unwrap(), vec![StepDefinition { when: None, ..step(0, "true") }]);
    assert_eq!(world(flow, bomb_params(), None).apply(&ACCEPT).unwrap().evaluation_steps, 0);
    let flow = Flow::new(Name::new("f").unwrap(), vec![step(0, BOMB)]);
    let steps = world(flow, bomb_params(), None).apply(&ACCEPT).unwrap().evaluation_steps;
    assert!((300_000..1_000_000).contains(&steps), "{steps}");
}

#[test]
fn a_task_that_begins_later_fails_when_its_conditions_take_too_long() {
    let mut world = world(conditions(BOMB), bomb_params(), Some(LATER));
    world.apply(&ACCEPT).unwrap();
    world.now = LATER;
    let transition = world.apply(&Command::Wake(Wakeup::Start)).unwrap();
    assert_eq!(transition.evaluation_steps, EVALUATION_STEPS_PER_TRANSITION_MAX);
    let failed = transition.task.state.steps.iter().find(|step| step.forward.state == ActState::Failed);
    let failure = failed.unwrap().forward.failure.clone().unwrap();
    assert_eq!(failure.code, DATA_CODE);
    assert!(failure.message.contains("take more than 2000000 steps: let them read shorter"), "{failure:?}");
    assert_ne!(transition.task.state.phase, Phase::Forward, "it is rolled back");
}

#[test]
fn steps_that_are_held_because_of_it_go_on_one_by_one() {
    let flow = Flow { on_failure: OnFailure::Hold, ..conditions(BOMB) };
    let mut world = world(flow, bomb_params(), Some(LATER));
    world.apply(&ACCEPT).unwrap();
    world.now = LATER;
    world.apply(&Command::Wake(Wakeup::Start)).unwrap();
    let is_failed =
        |world: &World, step: usize| world.task.state.steps[step].forward.state == ActState::Failed;
    let held: Vec<usize> = (0..255).filter(|step| is_failed(&world, *step)).collect();
    assert!(held.len() > 250, "{}", held.len());
    for step in held.iter().take(3) {
        let resolution = Resolution::Retry(None);
        world.apply(&Command::Resolve { step: *step, resolution, by: None }).unwrap();
        assert_eq!(world.task.state.steps[*step].forward.state, ActState::Ready);
    }
    assert!(held[3..].iter().all(|step| is_failed(&world, *step)), "the others wait");
}

#[test]
fn members_whose_keys_take_long_begin_in_several_transitions() {
    // Of each item one value is needed, and all are read.
    let values = vec!["1"; 5_000].join(",");
    let items: Vec<String> = (0..300).map(|id| format!(r#"{{"id":{id},"values":[{values}]}}"#)).collect();
    let params = Json::parse(&format!(r#"{{"items":[{}]}}"#, items.join(","))).unwrap();
    let fan = StepDefinition {
        each: Some(Each { list: "items".into(), parallel: 300 }),
        key: Some(Expression::compile("item.id").unwrap()),
        ..StepDefinition::new(Name::new("fan").unwrap(), action("m", "c"), Vec::new())
    };
    let mut world = world(Flow::new(Name::new("f").unwrap(), vec![fan]), params, None);
    let first = world.apply(&ACCEPT).unwrap();
    let open = |world: &World| world.task.state.steps[0].members.as_ref().unwrap().begun();
    let begun = open(&world);
    assert!((100..290).contains(&begun), "{begun} have begun");
    assert!(first.evaluation_steps < EVALUATION_STEPS_PER_TRANSITION_MAX);
    let mut transitions = 0;
    for number in 1..=300 {
        let key = windlass_core::ActKey::forward(0).of_member(number);
        assert_eq!(world.act(key).state, ActState::Ready, "member {number}");
        world.take(key);
        let report = world.report(key, Outcome::Succeeded(None));
        let steps = world.apply(&report).unwrap().evaluation_steps;
        transitions += u32::from(steps > 0);
    }
    assert!(transitions > 0, "others began later");
    assert_eq!(world.task.state.phase, Phase::Ended(Ending::Succeeded));
}
