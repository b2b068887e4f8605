//! The words and symbols of CEL: operators and their precedence, loops, reserved words.

use super::tree::{Binary, LoopKind, Node};

/// Words that CEL reserves for host languages. They can be fields, but not names.
pub(super) const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// An operator between two operands.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    Or,
    And,
    Binary(Binary),
}

impl Operator {
    /// The operation with these operands. A chain of one connective becomes one node.
    pub(super) fn of(self, left: Node, right: Node) -> Node {
        match (self, left) {
            (Self::Or, Node::Or(mut operands)) => {
                operands.push(right);
                Node::Or(operands)
            }
            (Self::And, Node::And(mut operands)) => {
                operands.push(right);
                Node::And(operands)
            }
            (Self::Or, left) => Node::Or(vec![left, right]),
            (Self::And, left) => Node::And(vec![left, right]),
            (Self::Binary(operator), left) => Node::Binary(operator, Box::new([left, right])),
        }
    }
}

/// The operator of a symbol, and its precedence.
pub(super) fn operator(symbol: &str) -> Option<(Operator, u8)> {
    let (operator, tightness) = match symbol {
        "||" => return Some((Operator::Or, 0)),
        "&&" => return Some((Operator::And, 1)),
        "==" => (Binary::Equal, 2),
        "!=" => (Binary::NotEqual, 2),
        "<" => (Binary::Less, 2),
        "<=" => (Binary::LessOrEqual, 2),
        ">" => (Binary::Greater, 2),
        ">=" => (Binary::GreaterOrEqual, 2),
        "in" => (Binary::In, 2),
        "+" => (Binary::Add, 3),
        "-" => (Binary::Subtract, 3),
        "*" => (Binary::Multiply, 4),
        "/" => (Binary::Divide, 4),
        "%" => (Binary::Remainder, 4),
        _ => return None,
    };
    Some((Operator::Binary(operator), tightness))
}

/// The loop for a call with this number of arguments.
pub(super) fn loop_kind(name: &str, arguments: usize) -> Option<LoopKind> {
    match (name, arguments) {
        ("all", 2) => Some(LoopKind::All),
        ("exists", 2) => Some(LoopKind::Exists),
        ("exists_one" | "existsOne", 2) => Some(LoopKind::ExistsOne),
        ("filter", 2) => Some(LoopKind::Filter),
        ("map", 2 | 3) => Some(LoopKind::Map),
        _ => None,
    }
}
