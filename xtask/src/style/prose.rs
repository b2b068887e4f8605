//! The parts of a file that people read: comments and messages of Rust, and the text of pages outside of code.

/// A piece of prose, and the number of the line on which it begins, from 1.
pub(super) type Piece<'t> = (usize, &'t str);

/// The prose in a file of this path: nothing for kinds of files that are not looked at.
pub(super) fn of_file<'t>(path: &str, text: &'t str) -> Vec<Piece<'t>> {
    match path.rsplit_once('.') {
        Some((_, "rs")) => of_rust(text),
        Some((_, "md")) => of_page(text),
        _ => Vec::new(),
    }
}

/// The lines of a page that are not in a block of code.
fn of_page(text: &str) -> Vec<Piece<'_>> {
    let mut is_code = false;
    let mut pieces = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            pieces.push((index + 1, line));
        }
    }
    pieces
}

/// Comments, and texts in quotes that have a space in them.
fn of_rust(text: &str) -> Vec<Piece<'_>> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let end = match bytes[at] {
            b'/' if rest.starts_with("//") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                pieces.push((line, &rest[..end]));
                end
            }
            b'"' => {
                let end = end_of_text(rest);
                if rest[..end].contains(' ') {
                    pieces.push((line, &rest[..end]));
                }
                end
            }
            b'r' if !is_in_word(bytes, at) => raw_text(rest).unwrap_or(1),
            b'\'' => end_of_character(rest),
            _ => 1,
        };
        line += bytes[at..at + end].iter().filter(|byte| **byte == b'\n').count();
        at += end;
        while !text.is_char_boundary(at) {
            at += 1;
        }
    }
    pieces
}

fn is_in_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// The length of a text in quotes.
fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = true;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return at + 1,
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
        if at == 0 {
            is_escaped = false;
        }
    }
    rest.len()
}

/// The length of a raw text, if one begins here. Those hold documents and code rather than messages.
fn raw_text(rest: &str) -> Option<usize> {
    let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
    let content = 1 + hashes + 1;
    if rest.as_bytes().get(content - 1) != Some(&b'"') {
        return None;
    }
    let closing = format!("\"{}", "#".repeat(hashes));
    Some(rest[content..].find(&closing).map_or(rest.len(), |found| content + found + closing.len()))
}

/// The length of a character in quotes; of a lifetime only its quote.
fn end_of_character(rest: &str) -> usize {
    if let Some(escape) = rest.strip_prefix("'\\") {
        // The character may be an escaped quote.
        let letter = escape.chars().next().map_or(0, char::len_utf8);
        return escape[letter..].find('\'').map_or(1, |found| 2 + letter + found + 1);
    }
    let mut characters = rest.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_messages_are_prose() {
        let code = "let a = 'x'; // one\nlet b = \"two words\";\nlet c = \"word\"; let d = '\"'; /// three\n\
                    fn f<'a>() { r#\"four // five\"#; '\\''; \"a \\\" b\" }\n";
        assert_eq!(
            of_rust(code),
            [(1, "// one"), (2, "\"two words\""), (3, "/// three"), (4, "\"a \\\" b\"")]
        );
    }

    #[test]
    fn a_page_is_prose_outside_of_code() {
        assert_eq!(of_page("one\n```sh\ntwo\n```\nthree"), [(1, "one"), (5, "three")]);
    }
}
