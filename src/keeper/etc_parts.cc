#include "keeper/etc_parts.h"

#include "egress/plan.h"

namespace temenos::keeper {

const std::vector<std::string> kHostEtc = {
    // TLS trust; never ssl/private.
    "ssl/certs",
    "ssl/openssl.cnf",
    "ca-certificates",
    "ca-certificates.conf",
    "pki",
    // The dynamic linker and the alternatives that /usr/bin points through.
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    // Names of things.
    "bindresvport.blacklist",
    "debian_version",
    "ethertypes",
    "gai.conf",
    "host.conf",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "mime.types",
    "networks",
    "os-release",
    "protocols",
    "rpc",
    "services",
    "timezone",
    // Shells, terminals, fonts, text tools. Not profile.d: administrators keep proxies and tokens
    // there.
    "bash.bashrc",
    "bash_completion.d",
    "fonts",
    "inputrc",
    "magic",
    "magic.mime",
    "manpath.config",
    "nanorc",
    "profile",
    "terminfo",
    "vim",
    "zsh",
    "ImageMagick-6",
    "groff",
    // Language runtimes.
    "emacs",
    "erlang",
    "ghc",
    "java",
    "java-8-openjdk",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "jvm",
    "lua",
    "perl",
    "php",
    "python",
    "python3",
    "python3.9",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "R",
    "ruby",
    "texmf",
};

std::vector<GeneratedFile> generated_etc(const std::string& hostname, NetworkMode network) {
  std::vector<GeneratedFile> files = {
      {"passwd",
       "root:x:0:0:root:/root:/bin/bash\n"
       "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
       "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
       "sys:x:3:3:sys:/dev:/usr/sbin/nologin\n"
       "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
       "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
       "user:x:1000:1000:user:/home/user:/bin/bash\n"
       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
      {"group",
       "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\n"
       "www-data:x:33:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n"},
      {"hosts", "127.0.0.1 localhost " + hostname + "\n::1 localhost ip6-localhost ip6-loopback " +
                    hostname + "\n"},
      {"hostname", hostname + "\n"},
      {"nsswitch.conf",
       "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
       "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
      // So that root of the box can `su user`; root of a box is nobody's guard.
      {"pam.d/other",
       "auth sufficient pam_rootok.so\nauth required pam_deny.so\naccount required pam_permit.so\n"
       "password required pam_deny.so\nsession required pam_permit.so\n"},
      {"shells", "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"},
  };
  // With the host's network the host's resolver is the one that works (copied by the caller);
  // without a network an empty file makes every look-up fail at once instead of after a time-out.
  if (network == NetworkMode::kNone) files.push_back({"resolv.conf", ""});
  if (network == NetworkMode::kFiltered) {
    files.push_back({"resolv.conf", "nameserver " + std::string(egress::kRouter4) + "\n"});
  }
  return files;
}

}  // namespace temenos::keeper
