//! Expressions and their answers.

use super::*;

#[test]
fn expressions_have_the_answers_of_cel() {
    for (source, expected) in [
        // Names.
        ("size", "3"),
        ("params.size", "3"),
        ("params['odd name']", r#""odd""#),
        ("order.tags.z", "1"),
        ("order['id']", "7"),
        ("has(params.size)", "true"),
        ("has(params.missing)", "false"),
        ("has(order.tags) && !has(order.price)", "true"),
        ("'size' in params", "true"),
        ("params == params", "true"),
        ("nothing", "null"),
        ("nothing == null", "true"),
        // Numbers: integers are int, all others double; compared by value.
        ("type(size) == int && type(ratio) == double && type(whole) == double", "true"),
        ("size > ratio && size < 3.5 && whole == 2 && size != 2.0", "true"),
        ("large > 9223372036854775807 && large == 18446744073709551615u", "true"),
        ("9007199254740993 == 9007199254740992.0", "false"),
        ("1 + 2 * 3 - 8 / 3 % 2", "7"),
        ("-7 / 2", "-3"),
        ("negative % 4", "-3"),
        ("-negative", "7"),
        ("ratio * 2.0 + .5", "1.5"),
        ("1.0 / 0.0 > 1e308", "true"),
        ("0x10 + 1", "17"),
        ("2u + 3u", "5u"),
        // Texts.
        ("'customer-' + customer", r#""customer-acme""#),
        ("'a' < 'b'", "true"),
        ("size(accent)", "2"),
        ("customer.contains('cm') && customer.startsWith('ac') && customer.endsWith('me')", "true"),
        (r#"'it\'s \u00e9' + r'\n' + """ "x" """"#, r#""it's é\\n \"x\" ""#),
        ("'é' + accent", r#""éé€""#),
        // Logic: an error is ignored if the other side decides.
        ("true || missing", "true"),
        ("missing || true", "true"),
        ("missing && false", "false"),
        ("dry_run ? 'dry' : size > 2 ? 'big' : 'small'", r#""big""#),
        ("!dry_run", "true"),
        // Lists and maps.
        ("numbers[1]", "1"),
        ("numbers[2.0]", "2"),
        ("files[0].name", r#""a.png""#),
        ("2 in numbers && !(9 in numbers) && 'id' in order", "true"),
        ("[1, 2] + numbers", "[1, 2, 3, 1, 2]"),
        ("{'a': 1, 'b': size}['b']", "3"),
        ("{1: 'one'}[1.0]", r#""one""#),
        ("[1, 2.0] == [1.0, 2] && {'a': [1]} == {'a': [1.0]}", "true"),
        ("size(numbers) + numbers.size() + size(order)", "8"),
        // Loops.
        ("files.all(file, file.size >= 0)", "true"),
        ("files.exists(file, file.name.endsWith('.png'))", "true"),
        ("numbers.exists_one(n, n > 2)", "true"),
        ("numbers.map(n, n * 10)", "[30, 10, 20]"),
        ("numbers.map(n, n > 1, n * 10)", "[30, 20]"),
        ("numbers.filter(n, n != 1)", "[3, 2]"),
        ("nested.map(inner, inner.map(n, n + 1))", "[[2, 3], [], [4]]"),
        ("numbers.map(n, numbers.filter(m, m < n))", "[[1, 2], [], [1]]"),
        ("numbers.filter(n, n > 1).map(size, size * 2)", "[6, 4]"),
        ("[0, 1].exists(n, 1 / n == 1)", "true"),
        ("[0, 1].all(n, 1 / n == 9)", "false"),
        ("[].all(n, n)", "true"),
        // The keys of a map are always in the same order.
        ("order.tags.map(key, key)", r#"["a", "z"]"#),
        ("params.filter(key, key.startsWith('n'))", r#"["negative", "nested", "nothing", "numbers"]"#),
        // Conversions.
        ("string(size) + string(true) + string(ratio)", r#""3true0.5""#),
        ("int('42') + int(2.9) + int(2u)", "46"),
        ("double('1.5') + double(size)", "4.5"),
        ("uint(3)", "3u"),
        ("bool('true')", "true"),
        ("dyn(size)", "3"),
        // Literals.
        ("-9223372036854775808 < 0 && --3 == 3 && !!dry_run == dry_run", "true"),
        (r"'\x41\101\U0001F600\?' + '''a'b''' + r'\q'", r#""AA😀?a'b\\q""#),
        ("[1, 2,].size() + {'a': 1,}.size() + {}.size()", "3"),
        ("0xFu == 15u && 1e3 == 1000 && -0x10 == -16", "true"),
        // Layout.
        ("size // the number\n  > 2", "true"),
    ] {
        assert_eq!(answer(source, &params()).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn what_cannot_be_evaluated_is_said_in_words() {
    for (source, expected) in [
        (
            "missing > 3",
            "the task has no parameter `missing`: where it may be missing, test with `has(params.missing)` first",
        ),
        (
            "params.missing",
            "`params` has no `missing`: where it may be missing, test with `has(params.missing)` first",
        ),
        ("files[0].owner", "a field `owner` is missing: where it may be, test with `has(…)` first"),
        ("size.name", "a whole number has no fields, so no `name`"),
        (
            "numbers[3]",
            "there is no such element in a list: where it may be missing, test with `in` or `size` first",
        ),
        ("size + ratio", "`+` cannot take a whole number (int) and a number with a fraction (double)"),
        ("customer > 3", "`>` cannot take a text (string) and a whole number (int)"),
        ("size && true", "`&&` needs true or false, not a whole number: compare it with something"),
        ("size ? 1 : 2", "`? :` needs true or false, not a whole number: compare it with something"),
        ("size / 0", "it divides by zero"),
        ("9223372036854775807 + size", "a number becomes too large for 64 bits"),
        ("-(-9223372036854775807 - 1)", "a number becomes too large for 64 bits"),
        ("(-9223372036854775807 - 1) / -1", "a number becomes too large for 64 bits"),
        ("int('three')", "`int` cannot take a text"),
        ("int(1e30)", "`int` cannot take 1e30: it is out of range"),
        ("uint(0 - 1)", "`uint` cannot take -1: it is out of range"),
        ("customer.contains(3)", "`contains` cannot take a text and a whole number"),
        ("size.all(n, true)", "a whole number has no elements: a list or a map is needed"),
        ("[1, 0].map(n, 1 / n)", "it divides by zero"),
        ("{'a': 1, 'a': 2}", "a map has the same key twice"),
        ("{1.5: 1}", "a key of a map must be a text, whole number or boolean"),
        ("1 in 2", "`in` cannot take a whole number (int) and a whole number (int)"),
    ] {
        let expected = format!("the expression `{source}` cannot be evaluated: {expected}");
        assert_eq!(answer(source, &params()), Err(expected), "{source}");
    }
}

#[test]
fn a_condition_is_true_or_false() {
    assert_eq!(compiled("size > 2").holds(&params()), Ok(true));
    assert_eq!(compiled("size > 3").holds(&params()), Ok(false));
    assert_eq!(
        compiled("size").holds(&params()).unwrap_err(),
        "the expression `size` evaluates to a whole number: a condition must be true or false, as in `size > 3`"
    );
    let long = format!("'{}'", "x".repeat(200));
    let error = compiled(&long).holds(&params()).unwrap_err();
    assert!(
        error.starts_with("the expression `'xxx") && error.contains("xx…` evaluates to a text"),
        "{error}"
    );
}

#[test]
fn a_key_is_a_text_a_whole_number_or_a_boolean() {
    for (source, expected) in [
        ("customer", "acme"),
        ("size", "3"),
        ("negative", "-7"),
        ("large", "18446744073709551615"),
        ("dry_run", "false"),
        ("'customer-' + string(order.id)", "customer-7"),
    ] {
        assert_eq!(compiled(source).text(&params()).as_deref(), Ok(expected), "{source}");
    }
    for (source, found) in [
        ("nothing", "nothing"),
        ("empty", "an empty text"),
        ("ratio", "a number with a fraction"),
        ("whole", "a number with a fraction"),
        ("numbers", "a list"),
        ("order", "a map"),
        ("type(size)", "a type"),
    ] {
        assert_eq!(
            compiled(source).text(&params()).unwrap_err(),
            format!(
                "the expression `{source}` evaluates to {found}: a key or a name must be a text of 1 to 256 bytes, \
                 a whole number, true or false"
            )
        );
    }
}

#[test]
fn a_key_is_at_most_so_long() {
    let key = |length: usize| compiled("key").text(&json(&format!(r#"{{"key":"{}"}}"#, "k".repeat(length))));
    assert_eq!(key(EXPRESSION_TEXT_BYTES_MAX).unwrap().len(), EXPRESSION_TEXT_BYTES_MAX);
    let error = key(EXPRESSION_TEXT_BYTES_MAX + 1).unwrap_err();
    assert!(error.contains("evaluates to a text of 257 bytes"), "{error}");
}

#[test]
fn only_the_parameters_that_are_needed_are_read() {
    // No double can represent the number, so reading it is an error.
    let params = json(r#"{"unreadable": 1e400, "size": 3, "odd name": 1}"#);
    for source in ["size == 3", "params.size == 3", "has(params.size)", "params['odd name'] == 1", "1 == 1"] {
        assert_eq!(compiled(source).holds(&params), Ok(true), "{source}");
    }
    for source in ["unreadable > 1.0", "params.unreadable > 1.0", "params == params", "'size' in params"] {
        let error = compiled(source).holds(&params).unwrap_err();
        assert!(error.contains("the parameters cannot be read: number out of range"), "{source}: {error}");
    }
}

#[test]
fn an_expression_is_its_text() {
    let expression = compiled("size > 2");
    assert_eq!(serde_json::to_string(&expression).unwrap(), r#""size > 2""#);
    let read: Expression = serde_json::from_str(r#""size \u003e 2""#).unwrap();
    assert_eq!(read, expression);
    assert_ne!(read, compiled("size > 3"));
    assert_eq!((read.source(), read.to_string().as_str()), ("size > 2", "size > 2"));
    assert_eq!(format!("{read:?}"), r#""size > 2""#);
    let error = serde_json::from_str::<Expression>(r#""size >""#).unwrap_err().to_string();
    assert!(error.starts_with("it ends where a value should be (column 7)"), "{error}");
}

#[test]
fn values_are_written_as_json() {
    let json = |source: &str| {
        let params =
            Json::parse(r#"{"body": {"id": 7, "tags": ["a", "\"b\""], "rate": 0.5, "none": null}}"#).unwrap();
        Expression::compile(source).unwrap().json_within(&params, &EvaluationBudget::default())
    };
    assert_eq!(json("body").unwrap(), r#"{"id":7,"none":null,"rate":0.5,"tags":["a","\"b\""]}"#);
    assert_eq!(json("body.tags.map(tag, tag + '!')").unwrap(), r#"["a!","\"b\"!"]"#);
    assert_eq!(json("{'x': body.id > 3}").unwrap(), r#"{"x":true}"#);
    assert!(json("{1: true}").unwrap_err().contains("a key that is not a text"));
    assert!(json("type(body)").unwrap_err().contains("which JSON does not have"));
    assert!(json("1.0 / 0.0").unwrap_err().contains("not finite"));
    assert!(json("body.missing").is_err());
}
