//! The tree of an expression: built by [`parse`](mod@super::parse), then checked and evaluated.

/// A part of an expression that has a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    /// A parameter, or the element of a loop around it.
    Name(Box<str>),
    Select(Box<Select>),
    /// A container, and the index or key of an element in it.
    Index(Box<[Node; 2]>),
    Call(Box<Call>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<[Node; 2]>),
    /// Operands of `&&`, two or more.
    And(Vec<Node>),
    /// Operands of `||`, two or more.
    Or(Vec<Node>),
    /// `condition ? yes : no`
    Choice(Box<[Node; 3]>),
    List(Vec<Node>),
    Map(Vec<[Node; 2]>),
    Loop(Box<Loop>),
}

/// `operand.field`, or `has(operand.field)` where `is_test`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Select {
    pub(super) operand: Node,
    pub(super) field: Box<str>,
    pub(super) is_test: bool,
}

/// A call of a function: `name(arguments)` or `target.name(arguments)`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub(super) name: Box<str>,
    /// The offset of the name in the expression's source, in bytes.
    pub(super) at: usize,
    pub(super) target: Option<Node>,
    pub(super) arguments: Vec<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Negate,
}

/// An operator that always needs both of its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

/// A macro over the elements of a list, or over the keys of a map: `range.all(name, condition)`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Loop {
    pub(super) kind: LoopKind,
    pub(super) range: Node,
    /// The name of the element within `condition` and `element`.
    pub(super) name: Box<str>,
    /// Absent in `range.map(name, element)`, which takes all elements.
    pub(super) condition: Option<Node>,
    /// The result of `map` for an element. Absent in the other macros.
    pub(super) element: Option<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}

impl LoopKind {
    /// The macro's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Exists => "exists",
            Self::ExistsOne => "exists_one",
            Self::Filter => "filter",
            Self::Map => "map",
        }
    }
}
