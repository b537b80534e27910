// What OpenSSL's client sends is read; and of what is read, however it was changed on its way,
// OpenSSL's server sees the same name.
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "wire/tls_hello.h"

namespace temenos::wire {
namespace {

using Status = TlsHelloReader::Status;
using Wire = std::vector<std::uint8_t>;
using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Connection = std::unique_ptr<SSL, decltype(&SSL_free)>;

struct Client {
  const char* name = nullptr;
  int most = TLS1_3_VERSION;
  bool small_records = false;
  bool many_protocols = false;
};

Wire openssl_hello(const Client& client) {
  const Context context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_max_proto_version(context.get(), client.most);
  if (client.small_records) SSL_CTX_set_max_send_fragment(context.get(), 512);
  if (client.many_protocols) {
    std::string list;
    for (int i = 0; i < 100; ++i) list += std::string("\x20") + std::string(32, 'p');
    SSL_CTX_set_alpn_protos(context.get(), reinterpret_cast<const unsigned char*>(list.data()),
                            static_cast<unsigned>(list.size()));
  }
  const Connection ssl(SSL_new(context.get()), SSL_free);
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), in, out);
  if (client.name != nullptr) SSL_set_tlsext_host_name(ssl.get(), client.name);
  SSL_connect(ssl.get());
  ERR_clear_error();
  char* bytes = nullptr;
  const auto size = static_cast<std::size_t>(BIO_get_mem_data(out, &bytes));
  return {bytes, bytes + size};
}

// The callback's own view: the first server name in the extension's bytes.
struct Seen {
  bool called = false;
  bool has_extension = false;
  std::string name;
};

int look(SSL* ssl, int*, void* into) {
  auto& seen = *static_cast<Seen*>(into);
  seen.called = true;
  const unsigned char* data = nullptr;
  std::size_t size = 0;
  seen.has_extension = SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &data, &size) == 1;
  if (seen.has_extension && size >= 5) {
    const std::size_t length = static_cast<std::size_t>(data[3]) << 8 | data[4];
    if (5 + length <= size) seen.name.assign(reinterpret_cast<const char*>(data) + 5, length);
  }
  return SSL_CLIENT_HELLO_RETRY;
}

Seen openssl_sees(const Wire& wire) {
  static const Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  Seen seen;
  SSL_CTX_set_security_level(context.get(), 0);
  SSL_CTX_set_client_hello_cb(context.get(), look, &seen);
  const Connection ssl(SSL_new(context.get()), SSL_free);
  BIO* in = BIO_new(BIO_s_mem());
  BIO_write(in, wire.data(), static_cast<int>(wire.size()));
  SSL_set_bio(ssl.get(), in, BIO_new(BIO_s_mem()));
  SSL_accept(ssl.get());
  ERR_clear_error();
  return seen;
}

TEST(TlsHelloOpenSsl, ItsClientsAreRead) {
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION, TLS1_2_VERSION, TLS1_3_VERSION}) {
    for (const bool large : {false, true}) {
      for (const char* name : {static_cast<const char*>(nullptr), "Host.Example", "192.0.2.1"}) {
        const Wire wire = openssl_hello({name, version, large, large});
        TlsHelloReader reader;
        ASSERT_EQ(reader.feed(wire), Status::kHello) << reader.reason();
        EXPECT_EQ(reader.hello().size, wire.size());
        ASSERT_EQ(reader.hello().server_name.has_value(), name != nullptr);
        if (name != nullptr) {
          EXPECT_EQ(reader.hello().server_name->text, lower_ascii(name));
        }
        if (large) {
          EXPECT_GT(wire.size(), 3300u);  // more than one record of 512
        }
        TlsHelloReader part;
        EXPECT_EQ(part.feed(Bytes(wire).first(wire.size() - 1)), Status::kNeedMore);
      }
    }
  }
}

TEST(TlsHelloOpenSsl, ItsServerSeesTheSameName) {
  const std::vector<Wire> seeds = {
      openssl_hello({"host.example"}), openssl_hello({"host.example", TLS1_2_VERSION}),
      openssl_hello({nullptr}), openssl_hello({"host.example", TLS1_3_VERSION, true, true})};
  std::mt19937 random(20261130);
  int compared = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    Wire wire = seeds[random() % seeds.size()];
    for (auto changes = random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % wire.size();
      switch (random() % 3) {
        case 0:
          wire[at] = static_cast<std::uint8_t>(random());
          break;
        case 1:
          wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        case 2: {
          // Two bytes of somewhere else: types and sizes of the other fields.
          const std::size_t from = random() % wire.size();
          wire[at] = wire[from];
          if (at + 1 < wire.size() && from + 1 < wire.size()) wire[at + 1] = wire[from + 1];
          break;
        }
      }
    }
    TlsHelloReader reader;
    if (reader.feed(wire) != Status::kHello) {
      ++refused;
      continue;
    }
    const Seen seen = openssl_sees(wire);
    if (!seen.called) continue;  // it refuses more than we do: a version, a suite
    ++compared;
    ASSERT_EQ(seen.has_extension, reader.hello().server_name.has_value());
    if (seen.has_extension) {
      ASSERT_EQ(lower_ascii(seen.name), reader.hello().server_name->text);
    }
  }
  EXPECT_GT(compared, 5'000);
  EXPECT_GT(refused, 1'000);
}

// A server and a client, whose bytes the test carries.
struct End {
  explicit End(const SSL_METHOD* method) : context(SSL_CTX_new(method), SSL_CTX_free) {}
  void begin() {
    ssl = Connection(SSL_new(context.get()), SSL_free);
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl.get(), in, out);
  }
  Wire take() {
    Wire wire(BIO_ctrl_pending(out));
    if (!wire.empty()) BIO_read(out, wire.data(), static_cast<int>(wire.size()));
    return wire;
  }
  void give(const Wire& wire) { BIO_write(in, wire.data(), static_cast<int>(wire.size())); }
  Context context;
  Connection ssl{nullptr, SSL_free};
  BIO* in = nullptr;
  BIO* out = nullptr;
};

void certify(SSL_CTX* context) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3'600);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  ASSERT_EQ(SSL_CTX_use_certificate(context, certificate.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, key.get()), 1);
}

TEST(TlsHelloOpenSsl, ItsServerAsksForASecondHello) {
  for (const bool again : {true, false}) {
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      End server(TLS_server_method());
      End client(TLS_client_method());
      certify(server.context.get());
      SSL_CTX_set_max_proto_version(server.context.get(), version);
      ASSERT_EQ(SSL_CTX_set1_groups_list(server.context.get(), again ? "P-256" : "X25519"), 1);
      ASSERT_EQ(SSL_CTX_set1_groups_list(client.context.get(), "X25519:P-256"), 1);
      server.begin();
      client.begin();
      SSL_set_tlsext_host_name(client.ssl.get(), "host.example");
      SSL_connect(client.ssl.get());
      server.give(client.take());
      SSL_accept(server.ssl.get());
      const Wire answer = server.take();
      const bool asks = again && version == TLS1_3_VERSION;
      EXPECT_EQ(tls_asks_again(answer), asks ? Start::kYes : Start::kNo);
      if (!asks) continue;
      client.give(answer);
      SSL_connect(client.ssl.get());
      const Wire second = client.take();
      const std::size_t between = tls_between_hellos(second).size;
      EXPECT_GT(between, 0u);
      TlsHelloReader reader;
      ASSERT_EQ(reader.feed(Bytes(second).subspan(between)), Status::kHello);
      EXPECT_EQ(reader.hello().server_name->text, "host.example");
      EXPECT_EQ(between + reader.hello().size, second.size());
    }
  }
  ERR_clear_error();
}

}  // namespace
}  // namespace temenos::wire
