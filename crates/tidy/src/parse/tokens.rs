//! Paths and functions among the tokens of a macro's arguments.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Calls `emit` with each path of at least two segments and its line. A group ends a path, so that
/// `a::{b, c}` gives none.
pub(super) fn paths(tokens: TokenStream, emit: &mut impl FnMut(Vec<String>, usize)) {
    let mut path: Vec<String> = Vec::new();
    let mut line = 0;
    // Number of colons since the last identifier.
    let mut colons = 0;
    let mut end = |path: &mut Vec<String>, line: usize| {
        if path.len() > 1 {
            emit(std::mem::take(path), line);
        }
        path.clear();
    };
    let mut groups = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                // One colon ends a path, as before a type; only two continue it.
                if colons != 2 {
                    end(&mut path, line);
                    line = ident.span().start().line;
                }
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => colons += 1,
            TokenTree::Group(group) => {
                end(&mut path, line);
                colons = 0;
                groups.push(group);
            }
            _ => {
                end(&mut path, line);
                colons = 0;
            }
        }
    }
    end(&mut path, line);
    for group in groups {
        paths(group.stream(), emit);
    }
}

/// Calls `emit` with the name, first line and number of lines of each `fn` that has a body.
pub(super) fn functions(tokens: TokenStream, emit: &mut dyn FnMut(String, usize, usize)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut open: Option<(String, usize)> = None;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "fn" => {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1) {
                    open = Some((name.to_string(), word.span().start().line));
                }
            }
            // A declaration without a body, as in a trait.
            TokenTree::Punct(mark) if mark.as_char() == ';' => open = None,
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Brace
                    // The first braces behind `fn` are its body.
                    && let Some((name, line)) = open.take()
                {
                    emit(name, line, group.span_close().end().line + 1 - line);
                }
                functions(group.stream(), emit);
            }
            _ => {}
        }
    }
}
