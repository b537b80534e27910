// see /Users/somebody/notes
auto home = "/home/user/x";
auto none = "${TREE}/runner/";
