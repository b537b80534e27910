// ldns reads our answers as we mean them, we read its questions, and whatever we take, however it
// was changed on its way, is the same question to it.
#include <gtest/gtest.h>
#include <ldns/ldns.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "codec/address.h"
#include "wire/dns_message.h"

namespace temenos::wire {
namespace {

using Wire = std::vector<std::uint8_t>;
using Packet = std::unique_ptr<ldns_pkt, decltype(&ldns_pkt_free)>;

std::string text(const ldns_rdf* field) {
  const std::unique_ptr<char, decltype(&free)> owner(ldns_rdf2str(field), free);
  return owner.get();
}

Packet read(const Wire& wire) {
  ldns_pkt* packet = nullptr;
  if (ldns_wire2pkt(&packet, wire.data(), wire.size()) != LDNS_STATUS_OK) packet = nullptr;
  return Packet(packet, ldns_pkt_free);
}

Wire ldns_question(const char* name, ldns_rr_type type, unsigned udp_size) {
  const Packet packet(
      ldns_pkt_query_new(ldns_dname_new_frm_str(name), type, LDNS_RR_CLASS_IN, LDNS_RD),
      ldns_pkt_free);
  ldns_pkt_set_id(packet.get(), 4711);
  if (udp_size > 0) {
    ldns_pkt_set_edns_udp_size(packet.get(), static_cast<std::uint16_t>(udp_size));
    ldns_pkt_set_edns_do(packet.get(), true);
  }
  std::uint8_t* bytes = nullptr;
  std::size_t size = 0;
  EXPECT_EQ(ldns_pkt2wire(&bytes, packet.get(), &size), LDNS_STATUS_OK);
  const std::unique_ptr<std::uint8_t, decltype(&free)> owner(bytes, free);
  return {bytes, bytes + size};
}

// The question of a packet: "name type class".
std::string asked(const ldns_pkt* packet) {
  const ldns_rr_list* list = ldns_pkt_question(packet);
  if (ldns_rr_list_rr_count(list) != 1) return "not one question";
  const ldns_rr* rr = ldns_rr_list_rr(list, 0);
  return text(ldns_rr_owner(rr)) + " " + std::to_string(ldns_rr_get_type(rr)) + " " +
         std::to_string(ldns_rr_get_class(rr));
}

TEST(DnsLdns, ItsQuestionsAreRead) {
  for (const char* name :
       {"WWW.Example.", "a.", ".", "_x._tcp.example.", "2.1.18.198.in-addr.arpa."}) {
    for (const ldns_rr_type type : {LDNS_RR_TYPE_A, LDNS_RR_TYPE_AAAA, LDNS_RR_TYPE_TXT}) {
      for (const unsigned size : {0u, 512u, 1000u, 4096u}) {
        const auto question = parse_dns_question(ldns_question(name, type, size));
        ASSERT_TRUE(question);
        EXPECT_EQ(question->error, DnsRcode::kNoError);
        EXPECT_EQ(question->id, 4711);
        EXPECT_EQ(question->name + (question->name.empty() ? "" : "."),
                  lower_ascii(std::string(name) == "." ? "" : name));
        EXPECT_EQ(static_cast<int>(question->type), type);
        EXPECT_EQ(question->has_edns, size > 0);
        EXPECT_EQ(question->udp_size, size == 0 ? 512u : std::min<std::size_t>(size, 1232));
      }
    }
  }
}

TEST(DnsLdns, ReadsOurAnswers) {
  const struct {
    const char* name;
    ldns_rr_type type;
    DnsAnswer answer;
    const char* data;
  } rows[] = {
      {"wWw.Example.",
       LDNS_RR_TYPE_A,
       {.ttl = 60, .address = parse_address("198.18.1.2")},
       "198.18.1.2"},
      {"wWw.Example.",
       LDNS_RR_TYPE_AAAA,
       {.ttl = 1, .address = parse_address("2001:db8::1")},
       "2001:db8::1"},
      {"2.1.18.198.in-addr.arpa.",
       LDNS_RR_TYPE_PTR,
       {.ttl = 60, .pointer = "www.example"},
       "www.example."},
      {"www.example.", LDNS_RR_TYPE_TXT, {}, nullptr},
      {"www.example.", LDNS_RR_TYPE_A, {.rcode = DnsRcode::kNxDomain}, nullptr},
      {"www.example.", LDNS_RR_TYPE_A, {.rcode = DnsRcode::kBadVers}, nullptr},
  };
  for (const auto& row : rows) {
    for (const unsigned size : {0u, 1232u}) {
      const Wire wire = ldns_question(row.name, row.type, size);
      const auto question = parse_dns_question(wire);
      ASSERT_TRUE(question);
      const Packet packet = read(build_dns_answer(*question, row.answer, question->udp_size));
      ASSERT_TRUE(packet);
      EXPECT_TRUE(ldns_pkt_qr(packet.get()));
      EXPECT_TRUE(ldns_pkt_rd(packet.get()));
      EXPECT_TRUE(ldns_pkt_ra(packet.get()));
      EXPECT_FALSE(ldns_pkt_tc(packet.get()));
      EXPECT_EQ(asked(packet.get()), asked(read(wire).get()));  // with its case
      const unsigned rcode =
          static_cast<unsigned>(ldns_pkt_get_rcode(packet.get())) +
          (static_cast<unsigned>(ldns_pkt_edns_extended_rcode(packet.get())) << 4);
      if (size > 0 || row.answer.rcode != DnsRcode::kBadVers) {
        EXPECT_EQ(rcode, static_cast<unsigned>(row.answer.rcode));
      }
      EXPECT_EQ(ldns_pkt_edns(packet.get()), size > 0);
      const ldns_rr_list* answers = ldns_pkt_answer(packet.get());
      ASSERT_EQ(ldns_rr_list_rr_count(answers), row.data == nullptr ? 0u : 1u);
      if (row.data == nullptr) continue;
      const ldns_rr* rr = ldns_rr_list_rr(answers, 0);
      EXPECT_EQ(text(ldns_rr_owner(rr)), row.name);
      EXPECT_EQ(ldns_rr_get_type(rr), row.type);
      EXPECT_EQ(ldns_rr_ttl(rr), row.answer.ttl);
      EXPECT_EQ(text(ldns_rr_rdf(rr, 0)), row.data);
    }
  }
}

TEST(DnsLdns, SeesTheSameQuestion) {
  const std::vector<Wire> seeds = {ldns_question("WWW.Example.", LDNS_RR_TYPE_A, 0),
                                   ldns_question("a.b-c._d.example.", LDNS_RR_TYPE_AAAA, 1232)};
  std::mt19937 random(20261130);
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    Wire wire = seeds[random() % seeds.size()];
    for (auto changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % wire.size();
      const auto byte = static_cast<std::uint8_t>(random() % 2 == 0 ? random() : random() % 16);
      if (random() % 4 != 0) {
        wire[at] = byte;
      } else if (random() % 2 == 0) {
        wire.erase(wire.begin() + static_cast<std::ptrdiff_t>(at));
      } else {
        wire.insert(wire.begin() + static_cast<std::ptrdiff_t>(at), byte);
      }
    }
    const auto question = parse_dns_question(wire);
    if (!question || question->error != DnsRcode::kNoError) continue;
    ++taken;
    const Packet packet = read(wire);
    ASSERT_TRUE(packet);
    ASSERT_EQ(lower_ascii(asked(packet.get())),
              question->name + ". " + std::to_string(static_cast<int>(question->type)) + " " +
                  std::to_string(question->of_class));
    ASSERT_EQ(ldns_pkt_edns(packet.get()), question->has_edns);
  }
  EXPECT_GT(taken, 3'000);
}

}  // namespace
}  // namespace temenos::wire
