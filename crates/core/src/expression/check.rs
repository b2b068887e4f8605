//! Checks a parsed tree, and collects the parameters that it needs.

use super::{
    EXPRESSION_LOOPS_MAX, ExpressionError,
    functions::{FUNCTIONS, Style},
    parameters::{Needs, PARAMS},
    tree::{Call, Loop, Node, Select},
};
use crate::RESULTS;

/// The parameters that `tree` needs, and whether it has loops.
pub(super) fn check(tree: &Node, source: &str) -> Result<(Needs, bool), ExpressionError> {
    let mut check = Check { source, needs: Needs::default(), bound: Vec::new(), loops: 0, has_loops: false };
    check.node(tree)?;
    Ok((check.needs, check.has_loops))
}

struct Check<'t> {
    source: &'t str,
    needs: Needs,
    /// The names of the elements of the enclosing loops.
    bound: Vec<&'t str>,
    loops: usize,
    has_loops: bool,
}

impl<'t> Check<'t> {
    fn node(&mut self, node: &'t Node) -> Result<(), ExpressionError> {
        match node {
            Node::Null | Node::Bool(_) | Node::Int(_) | Node::Uint(_) | Node::Double(_) | Node::Text(_) => {
                Ok(())
            }
            Node::Name(name) => {
                self.name(name);
                Ok(())
            }
            Node::Select(select) => self.select(select),
            Node::Index(parts) => self.index(parts),
            Node::Call(call) => {
                self.function(call)?;
                self.nodes(call.target.iter().chain(&call.arguments))
            }
            Node::Unary(_, operand) => self.node(operand),
            Node::Binary(_, operands) => self.nodes(&**operands),
            Node::Choice(parts) => self.nodes(&**parts),
            Node::And(nodes) | Node::Or(nodes) | Node::List(nodes) => self.nodes(nodes),
            Node::Map(entries) => self.nodes(entries.iter().flatten()),
            Node::Loop(each) => self.each(each),
        }
    }

    fn nodes(&mut self, nodes: impl IntoIterator<Item = &'t Node>) -> Result<(), ExpressionError> {
        nodes.into_iter().try_for_each(|node| self.node(node))
    }

    fn name(&mut self, name: &str) {
        if self.bound.contains(&name) {
            return;
        }
        if name == PARAMS {
            self.needs.all();
        } else {
            self.needs.one(name);
        }
    }

    /// `params.size` needs that one parameter, `params` needs all.
    fn select(&mut self, select: &'t Select) -> Result<(), ExpressionError> {
        if self.is_params(&select.operand) {
            self.needs.one(&select.field);
            return Ok(());
        }
        if self.is_name(&select.operand, RESULTS) {
            self.needs.result(&select.field);
        }
        self.node(&select.operand)
    }

    /// Whether it is the map of all parameters.
    fn is_params(&self, node: &Node) -> bool {
        self.is_name(node, PARAMS)
    }

    /// Whether it is this name, and not an element of a loop.
    fn is_name(&self, node: &Node, wanted: &str) -> bool {
        matches!(node, Node::Name(name) if **name == *wanted) && !self.bound.contains(&wanted)
    }

    /// As for a field: `params['odd name']` needs that one parameter.
    fn index(&mut self, parts: &'t [Node; 2]) -> Result<(), ExpressionError> {
        if let [container, Node::Text(name)] = parts {
            if self.is_params(container) {
                self.needs.one(name);
                return Ok(());
            }
            if self.is_name(container, RESULTS) {
                self.needs.result(name);
            }
        }
        self.nodes(parts)
    }

    fn function(&self, call: &Call) -> Result<(), ExpressionError> {
        let name = &*call.name;
        let style = if call.target.is_some() { Style::Member } else { Style::Global };
        let forms: Vec<_> = FUNCTIONS.iter().filter(|function| function.name == name).collect();
        if forms.is_empty() {
            return Err(self.at(call, unknown(name)));
        }
        if forms.iter().any(|function| function.style == style && function.arguments == call.arguments.len())
        {
            return Ok(());
        }
        let forms: Vec<_> = forms.iter().map(|function| format!("`{}`", function.example)).collect();
        Err(self.at(call, format!("`{name}` is called as in {}", forms.join(" or "))))
    }

    fn each(&mut self, each: &'t Loop) -> Result<(), ExpressionError> {
        self.node(&each.range)?;
        self.loops += 1;
        self.has_loops = true;
        if self.loops > EXPRESSION_LOOPS_MAX {
            return Err(ExpressionError::new(format!(
                "more than {EXPRESSION_LOOPS_MAX} of `all`, `exists`, `exists_one`, `map` and `filter` are \
                 inside one another: let a step prepare what is to be looked at"
            )));
        }
        self.bound.push(&each.name);
        self.nodes(each.condition.iter().chain(&each.element))?;
        self.bound.pop();
        self.loops -= 1;
        Ok(())
    }

    fn at(&self, call: &Call, message: impl Into<String>) -> ExpressionError {
        ExpressionError::at(self.source, call.at, message)
    }
}

/// The error message for an unknown function.
fn unknown(name: &str) -> String {
    match name {
        "all" | "exists" | "exists_one" | "existsOne" | "map" | "filter" => {
            format!("`{name}` takes a list, a name and an expression, as in `items.{name}(item, item > 0)`")
        }
        "has" => "`has` takes one field, as in `has(params.size)`".to_owned(),
        "matches" => {
            "there are no regular expressions: use `contains`, `startsWith` or `endsWith`".to_owned()
        }
        "now" | "timestamp" | "duration" | "random" => {
            format!("there is no `{name}`: the same parameters must always give the same answer")
        }
        _ => {
            let mut names: Vec<_> = FUNCTIONS.iter().map(|function| function.name).collect();
            names.dedup();
            format!(
                "there is no function `{name}`: there are {} and has, all, exists, exists_one, map, filter",
                names.join(", ")
            )
        }
    }
}
