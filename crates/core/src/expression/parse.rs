//! Builds the tree of an expression from its source, by the grammar of CEL (cel-spec, `doc/langdef.md`).
//!
//! Features that JSON parameters do not need are left out: bytes, messages, optional values and names in packages.

use super::{
    EXPRESSION_BYTES_MAX, ExpressionError,
    grammar::{RESERVED, loop_kind, operator},
    nesting,
    tokens::{Kind, Token, tokens},
    tree::{Call, Loop, LoopKind, Node, Select, Unary},
};

const OPTIONAL: &str = "optional values are not supported: test with `has(params.size)` first";

/// The tree of `source`.
///
/// # Errors
/// When `source` is too long, nests too deep, or is not valid CEL.
pub(super) fn parse(source: &str) -> Result<Node, ExpressionError> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(ExpressionError::new(format!(
            "it is {} bytes long, and at most {EXPRESSION_BYTES_MAX} are possible: let a step find out what is \
             to be known, and look at its result",
            source.len()
        )));
    }
    let tokens = tokens(source)?;
    nesting::check(source, &tokens)?;
    if tokens.len() == 1 {
        return Err(ExpressionError::new("it is empty: write a CEL expression"));
    }
    let mut parser = Parser { source, tokens, next: 0 };
    let tree = parser.expression().map_err(|error| *error)?;
    match parser.peek() {
        Kind::End => Ok(tree),
        _ => Err(*parser.error_here(format!(
            "'{}' does not belong here: an operator is missing before it, or it is too much",
            parser.text_here()
        ))),
    }
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token<'s>>,
    /// The index of the next token. The last token, the end, is never passed.
    next: usize,
}

/// Small, because the parser recurses.
type Parsed<T = Node> = Result<T, Box<ExpressionError>>;

impl<'s> Parser<'s> {
    fn peek(&self) -> &Kind<'s> {
        &self.tokens[self.next].kind
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    /// The next token as it is written.
    fn text_here(&self) -> &'s str {
        let token = &self.tokens[self.next];
        &self.source[token.at..token.end]
    }

    fn advance(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len() - 1);
    }

    /// Skips this symbol if it is next. Returns whether it was.
    fn take(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Kind::Symbol(next) if *next == symbol);
        if is_next {
            self.advance();
        }
        is_next
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.take(symbol) {
            return Ok(());
        }
        let message = match self.peek() {
            Kind::End => format!("it ends where '{symbol}' should be"),
            _ => format!("'{}' stands where '{symbol}' should be", self.text_here()),
        };
        Err(self.error_here(message))
    }

    fn error_here(&self, message: impl Into<String>) -> Box<ExpressionError> {
        self.error(self.at(), message)
    }

    fn error(&self, at: usize, message: impl Into<String>) -> Box<ExpressionError> {
        Box::new(ExpressionError::at(self.source, at, message))
    }

    fn expression(&mut self) -> Parsed {
        let condition = self.operation(0)?;
        if self.take("?") { self.choice(condition) } else { Ok(condition) }
    }

    fn choice(&mut self, condition: Node) -> Parsed {
        let yes = self.expression()?;
        self.expect(":")?;
        let no = self.expression()?;
        Ok(Node::Choice(Box::new([condition, yes, no])))
    }

    /// Parses operators with at least this precedence, left-associative.
    fn operation(&mut self, tightness_min: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Kind::Symbol(symbol) = *self.peek()
            && let Some((operator, tightness)) = operator(symbol)
            && tightness >= tightness_min
        {
            self.advance();
            let right = self.operation(tightness + 1)?;
            left = operator.of(left, right);
        }
        Ok(left)
    }

    /// Two equal operators in a row cancel out, as in CEL.
    fn unary(&mut self) -> Parsed {
        let mut operators: Vec<Unary> = Vec::new();
        while let Some(operator) = self.unary_operator() {
            if operators.last() == Some(&operator) {
                operators.pop();
            } else {
                operators.push(operator);
            }
        }
        let is_number = matches!(self.peek(), Kind::Int(_) | Kind::Double(_));
        // A number and its sign are parsed together: otherwise the lowest integer could not be written.
        let is_negative = is_number && operators.pop_if(|operator| *operator == Unary::Negate).is_some();
        let mut node = self.member(is_negative)?;
        while let Some(operator) = operators.pop() {
            node = Node::Unary(operator, Box::new(node));
        }
        Ok(node)
    }

    fn unary_operator(&mut self) -> Option<Unary> {
        let operator = match self.peek() {
            Kind::Symbol("!") => Unary::Not,
            Kind::Symbol("-") => Unary::Negate,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    /// A value, followed by accesses: fields, elements, calls.
    fn member(&mut self, is_negative: bool) -> Parsed {
        let start = self.at();
        let mut node = self.primary(is_negative)?;
        loop {
            let at = self.at();
            if self.take(".") {
                if self.take("?") {
                    return Err(self.error(at, OPTIONAL));
                }
                node = self.field(node)?;
            } else if self.take("[") {
                if self.take("?") {
                    return Err(self.error(at, OPTIONAL));
                }
                let index = self.expression()?;
                self.expect("]")?;
                node = Node::Index(Box::new([node, index]));
            } else if matches!(self.peek(), Kind::Symbol("{")) && is_path(&node) {
                return Err(self.no_type(start, at));
            } else {
                return Ok(node);
            }
        }
    }

    /// The error about a CEL message, whose type is named from `start` up to `end`.
    fn no_type(&self, start: usize, end: usize) -> Box<ExpressionError> {
        let name = self.source[start..end].trim_end();
        self.error(start, format!("there is no type `{name}` to make a value of: write a map"))
    }

    /// The access after the dot that follows `operand`.
    fn field(&mut self, operand: Node) -> Parsed {
        let (&Kind::Name(name), at) = (self.peek(), self.at()) else {
            return Err(self.error_here("the name of a field should be behind the dot"));
        };
        self.advance();
        if !self.take("(") {
            return Ok(Node::Select(Box::new(Select { operand, field: name.into(), is_test: false })));
        }
        let first = self.at();
        let arguments = self.list(")", false)?;
        match loop_kind(name, arguments.len()) {
            Some(kind) => self.each(kind, operand, arguments, first),
            None => {
                let call = Call { name: name.into(), at, target: Some(operand), arguments };
                Ok(Node::Call(Box::new(call)))
            }
        }
    }

    /// A loop over `range` with these arguments, which begin at `first`.
    fn each(&self, kind: LoopKind, range: Node, arguments: Vec<Node>, first: usize) -> Parsed {
        let mut arguments = arguments.into_iter();
        let Some(Node::Name(name)) = arguments.next() else {
            let message = "the first argument names the element, as in `items.all(item, item > 0)`";
            return Err(self.error(first, message));
        };
        let element = if kind == LoopKind::Map { arguments.next_back() } else { None };
        let condition = arguments.next();
        Ok(Node::Loop(Box::new(Loop { kind, range, name, condition, element })))
    }

    fn primary(&mut self, is_negative: bool) -> Parsed {
        if let Kind::Name(name) = *self.peek() {
            return self.name(name);
        }
        if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return self.list("]", true).map(Node::List);
        }
        if self.take("{") { self.map() } else { self.literal(is_negative) }
    }

    /// A number or a text.
    fn literal(&mut self, is_negative: bool) -> Parsed {
        let too_large = "this number does not fit into 64 bits";
        let literal = match self.peek() {
            Kind::Int(digits) => {
                let number = whole(digits, is_negative).and_then(|number| i64::try_from(number).ok());
                number.map(Node::Int).ok_or_else(|| self.error_here(too_large))?
            }
            Kind::Uint(digits) => {
                let number = whole(digits, false).and_then(|number| u64::try_from(number).ok());
                number.map(Node::Uint).ok_or_else(|| self.error_here(too_large))?
            }
            Kind::Double(digits) => {
                let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
                let number = number.ok_or_else(|| self.error_here("this number is too large"))?;
                Node::Double(if is_negative { -number } else { number })
            }
            Kind::Text(text) => Node::Text(text.clone()),
            Kind::End => return Err(self.error_here("it ends where a value should be")),
            _ => return Err(self.no_value()),
        };
        self.advance();
        Ok(literal)
    }

    /// The error about a symbol with which no value can begin.
    fn no_value(&mut self) -> Box<ExpressionError> {
        let at = self.at();
        if self.take(".")
            && let Kind::Name(plain) = self.peek()
        {
            let message = format!("a name does not begin with a dot: write `{plain}` or `params.{plain}`");
            return self.error_here(message);
        }
        self.error(at, "a value should be here")
    }

    /// A name, a function call, or a literal word.
    fn name(&mut self, name: &str) -> Parsed {
        let at = self.at();
        self.advance();
        match name {
            "true" => return Ok(Node::Bool(true)),
            "false" => return Ok(Node::Bool(false)),
            "null" => return Ok(Node::Null),
            _ if RESERVED.contains(&name) => {
                return Err(self.error(at, format!("`{name}` is reserved in CEL: write `params.{name}`")));
            }
            _ => {}
        }
        if !self.take("(") {
            return Ok(Node::Name(name.into()));
        }
        let first = self.at();
        let mut arguments = self.list(")", false)?;
        if name == "has" && arguments.len() == 1 {
            return match arguments.pop() {
                Some(Node::Select(select)) if !select.is_test => {
                    Ok(Node::Select(Box::new(Select { is_test: true, ..*select })))
                }
                _ => {
                    let message = "`has` takes a field, as in `has(params.size)` or `has(order.customer)`";
                    Err(self.error(first, message))
                }
            };
        }
        Ok(Node::Call(Box::new(Call { name: name.into(), at, target: None, arguments })))
    }

    /// Expressions separated by commas, up to the closing bracket. A list may end with a comma, arguments may not.
    fn list(&mut self, closing: &str, may_end_with_comma: bool) -> Parsed<Vec<Node>> {
        let mut nodes = Vec::new();
        if self.take(closing) {
            return Ok(nodes);
        }
        loop {
            nodes.push(self.expression()?);
            if !self.take(",") {
                self.expect(closing)?;
                return Ok(nodes);
            }
            if may_end_with_comma && self.take(closing) {
                return Ok(nodes);
            }
        }
    }

    fn map(&mut self) -> Parsed {
        let mut entries = Vec::new();
        while !self.take("}") {
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            entries.push([key, value]);
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(Node::Map(entries))
    }
}

/// Whether it could be the name of a type: names separated by dots.
fn is_path(node: &Node) -> bool {
    match node {
        Node::Name(_) => true,
        Node::Select(select) => !select.is_test && is_path(&select.operand),
        _ => false,
    }
}

/// A whole number, decimal or hexadecimal.
fn whole(digits: &str, is_negative: bool) -> Option<i128> {
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    number.ok().map(|number| if is_negative { -number } else { number })
}
