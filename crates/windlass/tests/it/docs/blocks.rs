//! What a page says: its commands, and what they print.

/// Commands of a page.
pub(super) struct Block {
    pub(super) line: usize,
    /// What it stands under.
    pub(super) heading: String,
    pub(super) script: String,
    /// What they print.
    pub(super) expected: Option<String>,
}

impl Block {
    /// The arguments of the server that this block starts, if it starts one.
    pub(super) fn server(&self) -> Option<Vec<&str>> {
        let words: Vec<&str> = self.script.split_whitespace().collect();
        let starts =
            matches!(words[..], ["windlass", "server" | "dev", ..]) && self.script.lines().count() == 1;
        starts.then(|| words[1..].to_vec())
    }
}

/// The `sh` blocks of a page, each with the `json` or `text` block that follows it.
pub(super) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut heading = String::new();
    while let Some((index, line)) = lines.next() {
        if let Some(begun) = line.strip_prefix("## ") {
            heading = begun.to_owned();
        }
        let Some(language) = line.strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let body = body.fold(String::new(), |text, line| text + line + "\n");
        match (language, blocks.last_mut()) {
            ("sh", _) => {
                blocks.push(Block { line: index + 1, heading: heading.clone(), script: body, expected: None })
            }
            ("json" | "text", Some(block)) if block.expected.is_none() => block.expected = Some(body),
            _ => {}
        }
    }
    blocks
}

/// Whether `printed` is as `expected` says; else the part of it that was not found.
pub(super) fn matches(expected: &str, printed: &str) -> Result<(), String> {
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    let (expected, printed) = (squeeze(expected), squeeze(printed));
    let mut rest = printed.as_str();
    let mut parts = expected.split('…').peekable();
    if let Some(first) = parts.next() {
        rest = rest.strip_prefix(first).ok_or(first)?;
        if parts.peek().is_none() && !rest.is_empty() {
            return Err(format!("nothing after {first}"));
        }
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return if rest.ends_with(part) { Ok(()) } else { Err(part.to_owned()) };
        }
        rest = &rest[rest.find(part).ok_or(part)? + part.len()..];
    }
    Ok(())
}

#[test]
fn expected_texts_are_compared_as_pages_show_them() {
    assert_eq!(matches("{ \"a\": 1 }", "{\"a\":1}\n"), Ok(()));
    assert_eq!(matches("{ \"a\": … }", "{\"a\":{\"b\":2}}"), Ok(()));
    assert_eq!(matches("a … b … c", "a1b2b3c"), Ok(()));
    assert!(matches("{ \"a\": 1 }", "{\"a\":1,\"b\":2}").is_err(), "more than expected");
    assert!(matches("a … b … c", "a1c").is_err(), "something is missing");
    assert!(matches("a … c", "a1cd").is_err(), "more at the end");
}
