//! fio's job files.
