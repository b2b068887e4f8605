# Prints the scalar at a path of a JSON document, such as params.Storage; a string without its quotes.
# Ends with 1 if there is nothing there, and with 3 if it cannot be read.

{ text = text $0 "\n" }

END {
    status = 1
    depth = 0
    length_of_text = length(text)
    for (i = 1; i <= length_of_text; i++) {
        c = substr(text, i, 1)
        if (c == "{" || c == "[") {
            depth++
            is_object[depth] = (c == "{")
            name[depth] = "[]"
            name_is_next = is_object[depth]
        } else if (c == "}" || c == "]") {
            depth--
        } else if (c == ",") {
            name_is_next = is_object[depth]
        } else if (c == "\"") {
            value = string()
            if (name_is_next) {
                name[depth] = value
                name_is_next = 0
            } else if (is_wanted()) {
                found(value)
                break
            }
        } else if (c ~ /[-0-9a-z]/) {
            match(substr(text, i), /^[-+.0-9A-Za-z]+/)
            value = substr(text, i, RLENGTH)
            i += RLENGTH - 1
            if (is_wanted()) {
                found(value)
                break
            }
        }
    }
    exit status
}

# The string that begins at i; i is at its closing quote afterwards.
function string(    value) {
    value = ""
    is_readable = 1
    for (i++; i <= length_of_text && (c = substr(text, i, 1)) != "\""; i++) {
        if (c == "\\") {
            c = substr(text, ++i, 1)
            if (c !~ /["\\\/]/) is_readable = (c == "n" || c == "t")
            if (c == "n" || c == "t") c = " "
        }
        value = value c
    }
    return value
}

function is_wanted(    path, level) {
    path = name[1]
    for (level = 2; level <= depth; level++) path = path "." name[level]
    return path == wanted
}

function found(value) {
    if (c == "\"" && !is_readable) {
        status = 3
    } else if (value != "null") {
        print value
        status = 0
    }
}
