//! Properties of every text and every flow.

use proptest::{collection::vec, option, prelude::*, sample::select};
use windlass_core::{
    Action, Backoff, DeviceJob, Doer, During, Each, Expression, Flow, JobArgs, JobTopic, LockRef, Millis,
    Name, OnConflict, OnFailure, OnPartial, PARALLEL_DEFAULT, PARALLEL_MAX, Retry, RetryBy, Role,
    SETTLE_DEFAULT, StepDefinition, TIMEOUT_DEFAULT, Unique, WhileOffline, device_lock,
    device_lock_expression,
};

use super::{Format, compile, compile_document, document, read};

const FILES: [(Format, &str); 5] = [
    (Format::Yaml, include_str!("../../tests/flowfiles/create_instance.yaml")),
    (Format::Yaml, include_str!("../../tests/flowfiles/everything.yaml")),
    (Format::Toml, include_str!("../../tests/flowfiles/create_instance.toml")),
    (Format::Json, include_str!("../../tests/flowfiles/create_instance.json")),
    (Format::Json, include_str!("../../tests/flowfiles/classic.json")),
];

/// Pieces with a meaning in at least one format.
const PIECES: [&str; 32] = [
    "{", "}", "[", "]", ":", ",", "\"", "'", "#", "/", "//", "/*", "*/", "\\", "\\u", "&a", "*a", "<<: ",
    "!!int ", "---\n", "- ", "\n", "\t", "\u{feff}", "é", "\0", "|", ">", "-1", "1e999", "null", "=",
];

#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, String),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0_usize..2_000;
    let piece = prop_oneof![3 => select(&PIECES[..]).prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)];
    prop_oneof![
        (place(), piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (place(), 1_usize..20).prop_map(|(at, length)| Edit::Remove(at, length)),
        (place(), 1_usize..200).prop_map(|(at, length)| Edit::Repeat(at, length)),
    ]
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for edit in edits {
        match edit {
            Edit::Insert(at, piece) => {
                let at = at % (characters.len() + 1);
                characters.splice(at..at, piece.chars());
            }
            Edit::Remove(at, length) => {
                let at = at % (characters.len() + 1);
                characters.drain(at..(at + length).min(characters.len()));
            }
            Edit::Repeat(at, length) => {
                let at = at % (characters.len() + 1);
                let part = characters[at..(at + length).min(characters.len())].to_vec();
                characters.splice(at..at, part);
            }
        }
    }
    characters.into_iter().collect()
}

/// Reads and compiles. An error must have a message and a place inside the text.
fn read_whole(text: &str, format: Format) -> Result<(), TestCaseError> {
    let refused = match read(text, format) {
        Ok(sources) => sources.iter().map(compile).find_map(Result::err),
        Err(error) => Some(error),
    };
    if let Some(error) = refused {
        prop_assert!(!error.message.is_empty() && error.message.len() < 1_000, "{}", error.message);
        let (line, column) = (error.line.unwrap_or(0), error.column.unwrap_or(0));
        prop_assert!(line >= 1 && line <= text.split('\n').count() as u64, "line {line}: {error}");
        let length = text.split('\n').nth(usize::try_from(line).unwrap() - 1).unwrap().chars().count() as u64;
        prop_assert!(column >= 1 && column <= length + 1, "column {column} of {length}: {error}");
    }
    Ok(())
}

fn name() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9][A-Za-z0-9_.-]{0,12}".prop_map(|text| Name::new(&text).unwrap())
}

/// A module has no dot, because `run` is split at the first one.
fn module() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9][A-Za-z0-9_-]{0,12}"
        .prop_filter("reserved", |text| text != "flow")
        .prop_map(|text| Name::new(&text).unwrap())
}

fn length() -> impl Strategy<Value = Millis> {
    prop_oneof![
        Just(TIMEOUT_DEFAULT),
        (1..=windlass_core::SPAN_MAX.0).prop_map(Millis),
        (1_u64..5_000).prop_map(Millis)
    ]
}

fn retry() -> impl Strategy<Value = Retry> {
    let backoff = select(vec![Backoff::Exponential, Backoff::Fixed, Backoff::None]);
    prop_oneof![
        Just(Retry::default()),
        (0_u32..100).prop_map(|max| Retry { max, ..Retry::default() }),
        (0_u32..=windlass_core::RETRIES_MAX, backoff, length(), length()).prop_map(
            |(max, backoff, one, other)| {
                Retry { max, backoff, base: one.min(other), cap: one.max(other) }
            }
        ),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    (module(), name(), length(), option::of(length()), option::of(length()), retry()).prop_map(
        |(module, command, timeout, deadline, start_within, retry)| Action {
            timeout,
            deadline,
            start_within,
            retry,
            ..Action::of_worker(module, command)
        },
    )
}

fn expression() -> impl Strategy<Value = Expression> {
    let texts = vec![
        "size",
        "size > 3 && !has(params.dry_run)",
        "'host-' + host",
        "hosts.all(host, host != '')",
        "true",
    ];
    select(texts).prop_map(|text| Expression::compile(text).unwrap())
}

fn unique() -> impl Strategy<Value = Unique> {
    let during =
        prop_oneof![Just(During::Pending), Just(During::Running), length().prop_map(During::Finished)];
    let on_conflict = prop_oneof![Just(OnConflict::Return), Just(OnConflict::Fail)];
    (expression(), during, on_conflict).prop_map(|(key, during, on_conflict)| Unique {
        key,
        during,
        on_conflict,
    })
}

fn lock() -> impl Strategy<Value = LockRef> {
    prop_oneof![
        name().prop_map(|name| LockRef::Name(Name::new(&name).unwrap())),
        expression().prop_map(LockRef::Expression)
    ]
}

fn each() -> impl Strategy<Value = Each> {
    let parallel = prop_oneof![Just(PARALLEL_DEFAULT), 1..=PARALLEL_MAX];
    ("[a-zA-Zé .]{1,12}", parallel).prop_map(|(list, parallel)| Each { list: list.into(), parallel })
}

/// A step with any action, as far as its place in the graph allows.
fn step() -> impl Strategy<Value = StepDefinition> {
    let conditions = || (option::of(expression()), option::of(length()), option::of(expression()));
    let of_worker = (action(), option::of(action()), option::of(each()), 0_u32..4, conditions()).prop_map(
        |(run, rollback, each, partial, (when, delay, key))| {
            let on_partial = match partial {
                _ if each.is_none() => OnPartial::Fail,
                0 => OnPartial::Fail,
                1 => OnPartial::Continue,
                least => OnPartial::AtLeast(least),
            };
            StepDefinition { rollback, each, on_partial, when, delay, key, ..bare(run) }
        },
    );
    let of_signal =
        (name(), option::of(length()), conditions()).prop_map(|(name, deadline, (when, delay, _))| {
            let run = Action::of_worker(name.clone(), name.clone());
            StepDefinition { when, delay, ..bare(Action { doer: Doer::Signal { name }, deadline, ..run }) }
        });
    let of_device = (job(), option::of(job()), device(), option::of(expression())).prop_map(
        |(run, rollback, device, when)| {
            let action = |job| Action {
                doer: Doer::Device(Box::new(job)),
                ..Action::of_worker(Name::new("x").unwrap(), Name::new("x").unwrap())
            };
            StepDefinition { rollback: rollback.map(action), when, locks: vec![device], ..bare(action(run)) }
        },
    );
    prop_oneof![3 => of_worker, 1 => of_signal, 1 => of_device]
}

fn device() -> impl Strategy<Value = LockRef> {
    prop_oneof![
        name().prop_map(|name| LockRef::Name(device_lock(&name).unwrap())),
        expression().prop_map(|expression| {
            LockRef::Expression(Expression::compile(&device_lock_expression(expression.source())).unwrap())
        })
    ]
}

fn job() -> impl Strategy<Value = DeviceJob> {
    let topic =
        prop_oneof![Just(JobTopic::Fixed("pump/run".into())), expression().prop_map(JobTopic::Expression)];
    let args = prop_oneof![
        Just(JobArgs::Fixed("{}".into())),
        Just(JobArgs::Fixed("{\"level\":3}".into())),
        expression().prop_map(JobArgs::Expression)
    ];
    let offline = prop_oneof![Just(WhileOffline::Wait), Just(WhileOffline::Fail)];
    let settle = prop_oneof![Just(SETTLE_DEFAULT), Just(Millis(0)), Just(Millis(1))];
    (topic, args, option::of(Just("pump/done".into())), offline, settle)
        .prop_map(|(topic, args, done, offline, settle)| DeviceJob { topic, args, done, offline, settle })
}

fn bare(run: Action) -> StepDefinition {
    StepDefinition::new(Name::new("x").unwrap(), run, Vec::new())
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        prop::num::f64::NORMAL.prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Into::into),
            vec((any::<String>(), inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn params() -> impl Strategy<Value = Option<Box<str>>> {
    option::of(vec((any::<String>(), json_value()), 1..4).prop_map(|members| {
        let members: serde_json::Map<String, serde_json::Value> = members.into_iter().collect();
        serde_json::to_string(&members).unwrap().into()
    }))
}

/// Sets the predecessors of a step, unless it follows the step before it.
fn placed(
    index: usize,
    name: &Name,
    before: Option<Vec<prop::sample::Index>>,
    step: StepDefinition,
) -> StepDefinition {
    let mut after = match before {
        None => index.checked_sub(1).into_iter().collect(),
        Some(_) if index == 0 => Vec::new(),
        Some(before) => before.iter().map(|before| before.index(index)).collect::<Vec<_>>(),
    };
    after.sort_unstable();
    after.dedup();
    let joins = after.len() > 1 && step.each.is_none();
    let on_partial = if joins { OnPartial::Continue } else { step.on_partial };
    StepDefinition { name: Name::new(&format!("{index}-{name}")).unwrap(), after, on_partial, ..step }
}

/// Adds a step for errors. It has the flow's concurrency key, and so has every other step without its own.
fn on_error(run: Action, key: Option<Expression>, steps: &mut Vec<StepDefinition>) {
    for step in steps.iter_mut().filter(|step| step.run.worker().is_some()) {
        step.key = step.key.take().or_else(|| key.clone());
    }
    let name = Name::new("on_error").unwrap();
    steps.push(StepDefinition { role: Role::OnError, key, name, ..bare(run) });
}

fn flow() -> impl Strategy<Value = Flow> {
    let step = (name(), step(), option::of(vec(any::<prop::sample::Index>(), 0..4)));
    let on_error_action = option::of((action(), option::of(expression())));
    let whole = (
        name(),
        params(),
        any::<bool>(),
        any::<bool>(),
        option::of(length()),
        option::of(unique()),
        option::of(length()),
        option::of(lock()),
    );
    (whole, vec(step, 1..12), on_error_action).prop_map(
        |((name, params, own, hold, deadline, unique, retention, exclusive), steps, action)| {
            let steps = steps.into_iter().enumerate();
            let mut steps =
                steps.map(|(index, (name, step, before))| placed(index, &name, before, step)).collect();
            if let Some((run, key)) = action {
                on_error(run, key, &mut steps);
            }
            Flow {
                version: 0,
                params,
                retry_by: if own { RetryBy::Module } else { RetryBy::Engine },
                on_failure: if hold { OnFailure::Hold } else { OnFailure::Rollback },
                deadline,
                unique,
                exclusive,
                retention,
                ..Flow::new(name, steps)
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edited_files_never_panic(file in select(&FILES[..]), edits in vec(edit(), 1..6)) {
        read_whole(&edited(file.1, &edits), file.0)?;
    }

    #[test]
    fn arbitrary_texts_never_panic(pieces in vec(prop_oneof![
        2 => select(&PIECES[..]).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => select(vec!["flow", "steps", "name", "run", "retry", "normal", "f", "m.c"]).prop_map(str::to_owned),
    ], 0..12)) {
        let text = pieces.concat();
        for format in [Format::Yaml, Format::Json, Format::Toml] {
            read_whole(&text, format)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_flow_and_its_document_are_the_same(flow in flow()) {
        let document = document(&flow);
        prop_assert_eq!(&compile_document(&document).unwrap(), &flow);
        // The same through a file.
        let text = serde_json::to_string(&document).unwrap();
        prop_assert_eq!(&compile(&read(&text, Format::Json).unwrap()[0]).unwrap(), &flow);
    }
}
