//! Files of the dashboard, the page for browsers that the daemon serves.
//!
//! The sources are TypeScript in `web/`; `npm run build` there writes `assets/` and the list of
//! its files, `src/built.rs`. Both are committed, so that a build of the daemon needs no Node.

#![forbid(unsafe_code)]

mod built;

/// File of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asset {
    /// Path in URLs: `/`, or `/assets/` and a name.
    pub path: &'static str,
    /// Media type, for `Content-Type`.
    pub content_type: &'static str,
    /// Content.
    pub bytes: &'static [u8],
    /// True if the name contains a hash of the content, so that it may be cached for good.
    pub is_hashed: bool,
}

/// Returns the file with a path; `None` if there is none.
pub fn asset(path: &str) -> Option<&'static Asset> {
    built::ASSETS.iter().find(|asset| asset.path == path)
}

/// Returns all files.
pub fn assets() -> &'static [Asset] {
    built::ASSETS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most bytes of all files together, so that the binary and the page stay small.
    const SIZE_MAX: usize = 400 << 10;

    fn page() -> &'static str {
        let page = asset("/").expect("there is a page");
        std::str::from_utf8(page.bytes).expect("text")
    }

    #[test]
    fn the_page_names_files_that_are_there_and_nothing_of_other_hosts() {
        for (attribute, _) in page().match_indices("\"/assets/") {
            let rest = &page()[attribute + 1..];
            let path = &rest[..rest.find('"').expect("a closing quote")];
            assert!(asset(path).is_some(), "{path}");
        }
        assert!(page().contains("\"/assets/"), "{}", page());
        assert!(!page().contains("//"), "{}", page());
        assert_eq!(asset("/assets/"), None);
        assert_eq!(asset("/assets/../lib.rs"), None);
    }

    #[test]
    fn the_page_has_no_code_or_style_within_it() {
        // The content policy of the daemon would refuse it.
        assert!(!page().contains("<style"), "{}", page());
        assert!(!page().contains(" style="), "{}", page());
        assert!(!page().contains("javascript:"), "{}", page());
        for (at, _) in page().match_indices("<script") {
            let tag = &page()[at..];
            let tag = &tag[..tag.find("</script>").expect("it ends")];
            assert!(tag.contains(" src=") && tag.ends_with('>'), "{tag}");
        }
    }

    #[test]
    fn the_files_are_small_and_their_types_are_known() {
        let size: usize = assets().iter().map(|asset| asset.bytes.len()).sum();
        assert!(size <= SIZE_MAX, "{size} bytes");
        for asset in assets() {
            let expected = match asset.path.rsplit('.').next() {
                Some("js") => "text/javascript",
                Some("css") => "text/css",
                Some("svg") => "image/svg+xml",
                _ => "text/html; charset=utf-8",
            };
            assert_eq!(asset.content_type, expected, "{}", asset.path);
            assert_eq!(asset.is_hashed, asset.path != "/", "{}", asset.path);
        }
    }
}
