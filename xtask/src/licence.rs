//! SPDX licence expressions, as packages state them: whether the licences we accept are enough for one.

/// Whether `expression` can be met with licences of `accepted` alone. `/` is the old way to write OR.
///
/// # Errors
/// When it is no expression, with what is wrong.
pub(crate) fn is_met(expression: &str, accepted: &[String]) -> Result<bool, String> {
    let text = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = text.split_whitespace().peekable();
    let met = alternatives(&mut words, accepted)?;
    match words.next() {
        None => Ok(met),
        Some(word) => Err(format!("`{word}` is not expected there")),
    }
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// `A OR B`; AND binds tighter.
fn alternatives(words: &mut Words<'_>, accepted: &[String]) -> Result<bool, String> {
    let mut met = conditions(words, accepted)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= conditions(words, accepted)?;
    }
    Ok(met)
}

/// `A AND B`.
fn conditions(words: &mut Words<'_>, accepted: &[String]) -> Result<bool, String> {
    let mut met = licence(words, accepted)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= licence(words, accepted)?;
    }
    Ok(met)
}

/// `NAME`, `NAME WITH EXCEPTION`, or an expression in brackets.
fn licence(words: &mut Words<'_>, accepted: &[String]) -> Result<bool, String> {
    match words.next() {
        None => Err("it ends where a licence is expected".to_owned()),
        Some("(") => {
            let met = alternatives(words, accepted)?;
            words.next_if_eq(&")").map(|_| met).ok_or_else(|| "a bracket is not closed".to_owned())
        }
        Some(word @ (")" | "AND" | "OR" | "WITH")) => {
            Err(format!("`{word}` stands where a licence is expected"))
        }
        Some(name) => {
            let mut name = name.to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                let exception = words.next().ok_or("an exception is missing after WITH")?;
                name = format!("{name} WITH {exception}");
            }
            Ok(accepted.contains(&name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_accepted_alternative_is_enough_and_every_condition_is_needed() {
        let accepted = ["MIT", "BSD-3-Clause", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        for (expression, met) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR Apache-2.0", true),
            ("GPL-3.0-only/MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT AND BSD-3-Clause", true),
            ("GPL-3.0-only OR MIT AND Apache-2.0", false),
            ("(GPL-3.0-only OR MIT) AND BSD-3-Clause", true),
            ("Apache-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true),
        ] {
            assert_eq!(is_met(expression, &accepted), Ok(met), "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR MIT", "MIT WITH", "MIT)"] {
            assert!(is_met(expression, &["MIT".to_owned()]).is_err(), "{expression}");
        }
    }
}
