// see /work/main/notes
auto home = "/home/user/work/x";
auto key = "/root/.ssh";
auto none = "${TREE}/work/";
