//! What is wrong with a tree though it can be parsed, and which parameters it needs.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators},
};

use super::{
    EXPRESSION_LOOPS_MAX, ExpressionError,
    functions::{FUNCTIONS, Style},
    parameters::{Needs, PARAMS},
    scan::Word,
};
use crate::RESULTS;

/// The parameters that `tree` needs, and whether it has loops.
pub(super) fn check(
    tree: &IdedExpr,
    source: &str,
    words: &[Word<'_>],
) -> Result<(Needs, bool), ExpressionError> {
    let mut check =
        Check { source, words, needs: Needs::default(), bound: Vec::new(), loops: 0, has_loops: false };
    check.node(tree)?;
    Ok((check.needs, check.has_loops))
}

struct Check<'t> {
    source: &'t str,
    words: &'t [Word<'t>],
    needs: Needs,
    /// Names of elements, of the loops around the node.
    bound: Vec<&'t str>,
    loops: usize,
    has_loops: bool,
}

impl<'t> Check<'t> {
    fn node(&mut self, node: &'t IdedExpr) -> Result<(), ExpressionError> {
        match &node.expr {
            Expr::Literal(LiteralValue::Bytes(_)) | Expr::Unspecified => {
                Err(ExpressionError::new("it has a part that is no value"))
            }
            Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.nodes(&list.elements),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.node(&entry.key)?;
                    self.node(&entry.value)
                }
                EntryExpr::StructField(field) => self.node(&field.value),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(message) => Err(self.at(
                &message.type_name,
                format!("there is no type `{}` to make a value of: write a map", message.type_name),
            )),
        }
    }

    fn nodes(&mut self, nodes: &'t [IdedExpr]) -> Result<(), ExpressionError> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn name(&mut self, name: &'t str) -> Result<(), ExpressionError> {
        if let Some(plain) = name.strip_prefix('.') {
            let message = format!("a name does not begin with a dot: write `{plain}` or `params.{plain}`");
            return Err(self.at(plain, message));
        }
        if !self.bound.contains(&name) {
            if name == PARAMS {
                self.needs.all();
            } else {
                self.needs.one(name);
            }
        }
        Ok(())
    }

    /// `params.size` needs that one parameter, `params` all.
    fn select(&mut self, select: &'t SelectExpr) -> Result<(), ExpressionError> {
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
    fn is_params(&self, node: &IdedExpr) -> bool {
        self.is_name(node, PARAMS)
    }

    /// Whether it is this name, and no element of a loop.
    fn is_name(&self, node: &IdedExpr, wanted: &str) -> bool {
        matches!(&node.expr, Expr::Ident(name) if name == wanted) && !self.bound.contains(&wanted)
    }

    fn call(&mut self, call: &'t CallExpr) -> Result<(), ExpressionError> {
        let part_of_name = |character: char| character.is_ascii_alphanumeric() || "_.".contains(character);
        let is_operator = !call.func_name.chars().all(part_of_name);
        if !is_operator {
            self.function(call)?;
        }
        // As with a field: `params['odd name']` needs that one parameter.
        if let (operators::INDEX, [container, index]) = (call.func_name.as_str(), call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(name)) = &index.expr
        {
            if self.is_params(container) {
                self.needs.one(name.inner());
                return Ok(());
            }
            if self.is_name(container, RESULTS) {
                self.needs.result(name.inner());
            }
        }
        if let Some(target) = &call.target {
            self.node(target)?;
        }
        self.nodes(&call.args)
    }

    fn function(&self, call: &CallExpr) -> Result<(), ExpressionError> {
        let name = call.func_name.as_str();
        let style = if call.target.is_some() { Style::Member } else { Style::Global };
        let forms: Vec<_> = FUNCTIONS.iter().filter(|function| function.name == name).collect();
        if forms.is_empty() {
            return Err(self.at(name, unknown(name)));
        }
        if forms.iter().any(|function| function.style == style && function.arguments == call.args.len()) {
            return Ok(());
        }
        let forms: Vec<_> = forms.iter().map(|function| format!("`{}`", function.example)).collect();
        Err(self.at(name, format!("`{name}` is called as in {}", forms.join(" or "))))
    }

    fn comprehension(&mut self, comprehension: &'t ComprehensionExpr) -> Result<(), ExpressionError> {
        self.node(&comprehension.iter_range)?;
        self.loops += 1;
        self.has_loops = true;
        if self.loops > EXPRESSION_LOOPS_MAX {
            return Err(ExpressionError::new(format!(
                "more than {EXPRESSION_LOOPS_MAX} of `all`, `exists`, `exists_one`, `map` and `filter` are \
                 inside one another: let a step prepare what is to be looked at"
            )));
        }
        self.bound.extend([comprehension.iter_var.as_str(), comprehension.accu_var.as_str()]);
        for node in [
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ] {
            self.node(node)?;
        }
        self.bound.truncate(self.bound.len() - 2);
        self.loops -= 1;
        Ok(())
    }

    /// An error about `word`, where it is first.
    fn at(&self, word: &str, message: impl Into<String>) -> ExpressionError {
        match self.words.iter().find(|(_, found)| *found == word) {
            Some((offset, _)) => ExpressionError::at(self.source, *offset, message),
            None => ExpressionError::new(message),
        }
    }
}

/// What to say of a function that there is not.
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
