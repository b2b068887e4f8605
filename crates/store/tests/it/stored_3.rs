//! Format 3: a flow says which parameters its rollbacks are given, and how many workers a step may take with it.

use windlass_core::{Action, Expression, Flow, Name, RollbackParams, StepDefinition};
use windlass_store::stored;

use crate::stored::fixture;

fn flow() -> Flow {
    let name = |text: &str| Name::new(text).unwrap();
    let action = |command: &str| Action::of_worker(name("mysql"), name(command));
    let init = StepDefinition {
        rollback: Some(action("clean")),
        when: Some(Expression::compile("size > 3").unwrap()),
        ..StepDefinition::new(name("init"), action("init"), Vec::new())
    };
    Flow { version: 2, ..Flow::new(name("create"), vec![init]) }
}

#[test]
fn format_3_of_flows_is_read() {
    let each = [RollbackParams::Step, RollbackParams::StepAndResult, RollbackParams::Shared];
    for (number, rollback_params) in each.into_iter().enumerate() {
        let flow = Flow { rollback_params, deaths_max: 300, ..flow() };
        let bytes = fixture(&format!("3/flow-{number}.bin"), &stored::write_flow(&flow));
        assert_eq!(stored::read_flow(&bytes).unwrap(), flow);
    }
}
