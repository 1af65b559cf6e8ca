//! List of the built files, written by `npm run build` in `web/`.

use super::Asset;

/// Files of `assets/`.
pub(super) const ASSETS: &[Asset] = &[
    Asset {
        path: "/assets/index-BUy0Tj5C.css",
        content_type: "text/css",
        bytes: include_bytes!("../assets/index-BUy0Tj5C.css"),
        is_hashed: true,
    },
    Asset {
        path: "/assets/index-CZnPm9L7.js",
        content_type: "text/javascript",
        bytes: include_bytes!("../assets/index-CZnPm9L7.js"),
        is_hashed: true,
    },
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../assets/index.html"),
        is_hashed: false,
    },
];
