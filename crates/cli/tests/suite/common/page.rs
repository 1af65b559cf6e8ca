//! Pages for a browser, as tests look at them.

use roxmltree::{Document, Node};

/// Returns the body of a page, which is well-formed XML.
pub(crate) fn body(html: &str) -> &str {
    let from = html.find("<body>").expect("a body");
    let to = html.find("</body>").expect("an end") + "</body>".len();
    &html[from..to]
}

/// Returns the ids of the sections of a page.
pub(crate) fn sections<'a>(document: &'a Document<'_>) -> Vec<&'a str> {
    let sections = document.descendants();
    let sections = sections.filter(|node| node.has_tag_name("section"));
    sections.filter_map(|node| node.attribute("id")).collect()
}

/// Returns the titles of the plots and charts of a page.
pub(crate) fn titles(document: &Document<'_>) -> Vec<String> {
    let svgs = document.descendants();
    let svgs = svgs.filter(|node| node.tag_name().name() == "svg");
    let title = |svg: Node<'_, '_>| {
        let mut parts = svg.children();
        let title = parts.find(|node| node.tag_name().name() == "title")?;
        Some(title.text()?.to_owned())
    };
    svgs.filter_map(title).collect()
}

/// Checks that a page refers to nothing outside of it, and has no script.
pub(crate) fn assert_loads_nothing(html: &str) {
    for word in ["src=", "<script", "url(", "@import", "<link", "href=\"h"] {
        assert!(!html.contains(word), "{word}");
    }
    // The name space of SVG is a name, not an address to load from.
    let names = html.matches("http://www.w3.org/2000/svg").count();
    let rest = html.matches("http-equiv").count();
    assert_eq!(html.matches("http").count(), names + rest);
}
