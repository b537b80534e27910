// see /work/main/notes
auto home = "/home/user/work/x";
auto none = "${TREE}/work/";
