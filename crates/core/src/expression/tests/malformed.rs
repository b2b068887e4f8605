//! Arbitrary text gives an expression or an error, never a panic.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;

/// Pieces of CEL, whole and broken.
const PIECES: [&str; 82] = [
    "size",
    "customer",
    "files",
    "numbers",
    "order",
    "params",
    "x",
    "n",
    "missing",
    "@result",
    ".",
    ".",
    ".x",
    ".?",
    "(",
    "(",
    ")",
    ")",
    "[",
    "[",
    "]",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    "+",
    "-",
    "-",
    "*",
    "/",
    "%",
    "!",
    "!",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "&&",
    "||",
    "=",
    "&",
    "|",
    " in ",
    "true",
    "false",
    "null",
    "0",
    "1",
    "9223372036854775807",
    "-9223372036854775808",
    "1u",
    "0x",
    "0xfF",
    "1e",
    "1e400",
    ".5",
    "1.5",
    "'a'",
    "\"b\"",
    "'''c'''",
    "r'\\'",
    "b'd'",
    "'",
    "\"",
    "\"\"\"",
    "\\",
    "'\\u00'",
    "`",
    "//",
    "\n",
    "\r",
    "é",
    "\u{0}",
    "has(",
    ".all(n,",
    ".map(n,",
    ".exists(x,",
    "size(",
];

const WHOLE: [&str; 14] = [
    "1 +\n(\n)",
    "/",
    ".",
    "size > 2 && !has(params.dry_run)",
    "files.all(file, file.size >= 0 && file.name.endsWith('.png'))",
    "numbers.filter(n, n > 1).map(n, n * 2)[0] == 6",
    "'customer-' + customer + string(order.id)",
    "dry_run ? 'dry' : size > 2 ? 'big' : 'small'",
    "{'a': [1, 2.0, -3u], 'b': {1: null}}['a'][0] in numbers",
    "nested.exists_one(inner, inner.exists(n, n == size))",
    "r'\\n' + \"\"\"a \"b\" \"\"\" + '\\u00e9\\x41\\101' == '\\\\'",
    "order.tags.map(key, order.tags[key] > 0, key) == ['a', 'z']",
    "// a comment\nsize > .5e-3",
    "((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))",
];

/// Compiles `source` and, if that succeeds, evaluates it.
fn survives(source: &str) -> Result<(), TestCaseError> {
    match Expression::compile(source) {
        Ok(expression) => {
            for params in [params(), Json::empty()] {
                let _ = expression.holds(&params);
                let _ = expression.text(&params);
            }
        }
        Err(error) => {
            prop_assert!(!error.message.is_empty());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_in_any_order(pieces in vec(select(&PIECES[..]), 0..60)) {
        survives(&pieces.concat())?;
    }

    #[test]
    fn expressions_with_a_part_replaced(
        whole in select(&WHOLE[..]),
        changes in vec((any::<prop::sample::Index>(), 0..4_usize, select(&PIECES[..])), 1..6),
    ) {
        let mut characters: Vec<char> = whole.chars().collect();
        for (place, removed, inserted) in changes {
            let start = place.index(characters.len() + 1);
            let end = (start + removed).min(characters.len());
            characters.splice(start..end, inserted.chars());
        }
        survives(&characters.into_iter().collect::<String>())?;
    }

    #[test]
    fn any_text(text in "\\PC{0,80}") {
        survives(&text)?;
    }

    #[test]
    fn any_piece_many_times(piece in select(&PIECES[..]), other in select(&PIECES[..]), times in 1..300_usize) {
        survives(&format!("{piece}{other}").repeat(times))?;
        survives(&format!("x{}x{}", piece.repeat(times), other.repeat(times)))?;
    }
}

#[test]
fn whole_expressions_are_whole() {
    let refused: Vec<_> = WHOLE.iter().filter(|source| Expression::compile(source).is_err()).collect();
    assert_eq!(refused, [&WHOLE[0], &WHOLE[1], &WHOLE[2]]);
}
