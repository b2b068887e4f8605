//! Refusals when an expression is compiled, and when its evaluation would take too long.

use std::thread;

use super::*;

fn refusal(source: &str) -> String {
    match Expression::compile(source) {
        Ok(_) => panic!("{source:?} should be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (source, expected) in [
        ("", "it is empty: write a CEL expression"),
        (" \n", "it is empty: write a CEL expression"),
        ("size >", "it ends where a value should be (column 7)"),
        (
            "size 3",
            "'3' does not belong here: an operator is missing before it, or it is too much (column 6)",
        ),
        ("(size", "this bracket is never closed (column 1)"),
        ("size)", "this bracket is closed, but was never opened (column 5)"),
        ("(size]", "a `)` should be here, not `]` (column 6)"),
        ("size = 3", "`=` compares nothing: write `==` (column 6)"),
        ("a and b", "`and` is not an operator: write `&&` (column 3)"),
        ("a & b", "`&` is not an operator: write `&&` (column 3)"),
        ("'é' + 'open", "this text never ends: its closing quote is missing (column 7)"),
        ("a >\n  é", "'é' has no meaning here: texts stand between quotes (line 2, column 3)"),
        ("a ? b", "it ends where ':' should be (column 6)"),
        ("b'x' == a", "bytes are not supported: parameters are JSON, which has texts (column 1)"),
        ("a.`b`", "names cannot be quoted: write `params['odd name']` (column 3)"),
        (".size", "a name does not begin with a dot: write `size` or `params.size` (column 2)"),
        ("99999999999999999999", "this number does not fit into 64 bits (column 1)"),
        ("1.0e999", "this number is too large (column 1)"),
        ("0x", "hexadecimal digits are missing after `0x` (column 1)"),
        ("3e", "digits are missing after the exponent's `e` (column 1)"),
        ("3size", "an operator is missing between a number and a name (column 2)"),
        (r"'a\q'", r"this text has an escape that CEL does not know: write `\\` for one `\` (column 1)"),
        ("package > 3", "`package` is reserved in CEL: write `params.package` (column 1)"),
        ("order.(3)", "the name of a field should be behind the dot (column 7)"),
        ("(a b)", "'b' stands where ')' should be (column 4)"),
        ("has(size)", "`has` takes a field, as in `has(params.size)` or `has(order.customer)` (column 5)"),
        (
            "a.all(b.c, true)",
            "the first argument names the element, as in `items.all(item, item > 0)` (column 7)",
        ),
        (
            "a.all(b)",
            "`all` takes a list, a name and an expression, as in `items.all(item, item > 0)` (column 3)",
        ),
        ("Point{x: 1}", "there is no type `Point` to make a value of: write a map (column 1)"),
        (
            "a.matches('x+')",
            "there are no regular expressions: use `contains`, `startsWith` or `endsWith` (column 3)",
        ),
        (
            "timestamp(a)",
            "there is no `timestamp`: the same parameters must always give the same answer (column 1)",
        ),
        ("a > now()", "there is no `now`: the same parameters must always give the same answer (column 5)"),
        ("size(a, b)", "`size` is called as in `size(items)` or `items.size()` (column 1)"),
        ("contains(a, b)", "`contains` is called as in `name.contains('part')` (column 1)"),
        (
            "false && lower(a) == 'x'",
            "there is no function `lower`: there are size, contains, startsWith, endsWith, \
            string, int, uint, double, bool, type, dyn and has, all, exists, exists_one, map, filter (column 10)",
        ),
        ("a.?b", "optional values are not supported: test with `has(params.size)` first (column 2)"),
    ] {
        assert_eq!(refusal(source), expected, "{source}");
    }
}

#[test]
fn an_expression_is_at_most_so_long() {
    let text = |length: usize| format!("'{}'", "x".repeat(length - 2));
    assert!(Expression::compile(&text(EXPRESSION_BYTES_MAX)).is_ok());
    assert!(refusal(&text(EXPRESSION_BYTES_MAX + 1)).starts_with("it is 1025 bytes long, and at most 1024"));
}

/// Ways to nest: each returns the text for a number of levels.
const NESTINGS: [fn(usize) -> String; 15] = [
    |levels| format!("{}1{}", "(".repeat(levels), ")".repeat(levels)),
    |levels| format!("{}1{}", "[".repeat(levels), "]".repeat(levels)),
    |levels| format!("{}1{}", "{1:".repeat(levels), "}".repeat(levels)),
    |levels| format!("{}a{}", "size(".repeat(levels), ")".repeat(levels)),
    |levels| format!("{}a{}", "dyn((".repeat(levels), "))".repeat(levels)),
    |levels| format!("{}a{}", "a[".repeat(levels), "]".repeat(levels)),
    |levels| format!("a{}", ".b".repeat(levels)),
    |levels| format!("1{}", ".b".repeat(levels)),
    |levels| format!("a{}", ".size()".repeat(levels)),
    |levels| format!("a{}", "[0]".repeat(levels)),
    |levels| format!("a{}", "+1".repeat(levels)),
    |levels| format!("{}a", "-!".repeat(levels)),
    |levels| format!("{}a", "a?1:".repeat(levels)),
    |levels| format!("{}a{}", "a.b+-(".repeat(levels), ")".repeat(levels)),
    |levels| format!("a.map(x,a.map(y,{}1{}))", "{x:[".repeat(levels / 2), "]}".repeat(levels / 2)),
];

#[test]
fn nesting_is_limited() {
    for nesting in NESTINGS {
        let text = nesting(4);
        assert!(Expression::compile(&text).is_ok(), "{text}");
        for levels in (EXPRESSION_DEPTH_MAX + 2)..400 {
            let text = nesting(levels);
            let error = refusal(&text);
            let too_long = text.len() > EXPRESSION_BYTES_MAX;
            assert!(too_long || error.starts_with("it nests deeper than 32 levels"), "{text}: {error}");
        }
    }
    // Independent operands do not add to the depth.
    assert_eq!(answer(&["1 == 1"; 100].join(" && "), &params()).as_deref(), Ok("true"));
    assert_eq!(answer(&format!("[{}].size()", ["1"; 400].join(",")), &params()).as_deref(), Ok("400"));
    assert_eq!(
        answer(r"'((((((((((((((((((((((((((((((((((((' != r'[[[\'", &params()).as_deref(),
        Ok("true")
    );
}

#[test]
fn a_sixteenth_of_a_threads_stack_is_enough_for_the_deepest() {
    let deepest = |nesting: fn(usize) -> String| {
        let mut texts = (1..=EXPRESSION_DEPTH_MAX).rev().map(nesting);
        texts.find_map(|text| Expression::compile(&text).ok())
    };
    let run = move || {
        for nesting in NESTINGS {
            let expression = deepest(nesting).unwrap();
            let _ = expression.holds(&json(r#"{"a": [true]}"#));
            drop(expression);
        }
        // The deepest value, compared at every level.
        let value = format!("{}{}", "[".repeat(60), "]".repeat(60));
        assert_eq!(compiled("[[[[a]]]] == [[[[a]]]]").holds(&json(&format!(r#"{{"a":{value}}}"#))), Ok(true));
    };
    thread::Builder::new().stack_size(128 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
fn loops_are_inside_one_another_at_most_so_often() {
    assert!(Expression::compile("a.all(x, x.all(y, y > 0)) && a.map(x, x).map(y, y).all(x, x)").is_ok());
    let error = refusal("a.all(x, x.all(y, y.all(z, z > 0)))");
    assert!(error.starts_with("more than 2 of `all`, `exists`, `exists_one`, `map` and `filter`"), "{error}");
    let error = refusal("a.all(x, x.map(y, y.exists_one(z, z > 0)) == [])");
    assert!(error.starts_with("more than 2 of"), "{error}");
}

#[test]
fn long_keys_and_texts_that_double_cost_what_they_take() {
    let numbers: Vec<_> = (0..20_000).map(|number| number.to_string()).collect();
    let key = "k".repeat(100_000);
    let params = json(&format!(
        r#"{{"numbers": [{}], "one": "{key}1", "two": "{key}2", "map": {{"{key}1": 1, "{key}3": 3}}}}"#,
        numbers.join(",")
    ));
    for endless in [
        "numbers.all(n, map == map)",
        "numbers.all(n, two in map || true)",
        "numbers.all(n, map[one] == 1)",
        "numbers.all(n, {one: 1, two: 2}.size() == 2)",
        "numbers.map(n, one + one).map(t, t + t).size() > 0",
        "[one + one].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)\
         .map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).size() > 0",
    ] {
        let error = compiled(endless).holds(&params).unwrap_err();
        assert!(error.contains("it takes more than 1000000 steps"), "{endless}: {error}");
    }
}

#[test]
fn evaluations_share_a_budget() {
    let params = json(&format!(r#"{{"numbers": [{}]}}"#, vec!["1"; 1_000].join(",")));
    let expression = compiled("numbers.all(n, n > 0)");
    let budget = EvaluationBudget::new(20_000);
    assert_eq!(expression.holds_within(&params, &budget), Ok(true));
    let once = budget.spent();
    assert!((5_000..10_000).contains(&once), "each number is read and looked at: {once}");
    while budget.spent() + once <= 20_000 {
        assert_eq!(expression.holds_within(&params, &budget), Ok(true));
    }
    assert!(!budget.is_exceeded());
    let error = expression.holds_within(&params, &budget).unwrap_err();
    assert!(
        error.contains("the expressions that are evaluated together take more than 20000 steps"),
        "{error}"
    );
    assert!(budget.is_exceeded());
    assert_eq!(budget.spent(), 20_000);
    // Reading alone may take too many steps: short values take more steps than their bytes.
    let budget = EvaluationBudget::new(500);
    assert!(compiled("numbers.size() > 0").holds_within(&params, &budget).is_err());
    assert!(budget.is_exceeded());
}

#[test]
fn an_evaluation_ends_after_so_many_steps() {
    let numbers: Vec<_> = (0..30_000).map(|number| number.to_string()).collect();
    let text = "x".repeat(30_000);
    let params = json(&format!(r#"{{"numbers": [{}], "text": "{text}"}}"#, numbers.join(",")));
    for linear in [
        "numbers.all(n, n >= 0)",
        "numbers.filter(n, n % 2 == 0).size() == 15000",
        "numbers.map(n, n * 2).exists(n, n == 59998)",
        "(numbers + numbers).size() == 60000",
        "29999 in numbers && numbers == numbers",
    ] {
        assert_eq!(compiled(linear).holds(&params), Ok(true), "{linear}");
    }
    for endless in [
        "numbers.all(n, numbers.all(m, m >= 0))",
        "numbers.all(n, !(-1 in numbers))",
        "numbers.exists(n, -1 in numbers) || true",
        "numbers.all(n, numbers == numbers)",
        "numbers.map(n, numbers + numbers).size() > 0",
        "[numbers + numbers].map(l, l.map(n, l + l)).size() > 0",
        "numbers.map(n, text + text).size() > 0",
        "numbers.all(n, text == text)",
        "numbers.all(n, text.contains('y') || true)",
        "numbers.all(n, size(params.map(k, numbers + [k])) > 0)",
    ] {
        let error = compiled(endless).holds(&params).unwrap_err();
        assert!(
            error.ends_with("it takes more than 1000000 steps: its lists or texts are too long for it"),
            "{error}"
        );
    }
}
