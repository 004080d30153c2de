#include "common/comm/store_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/security/secret.h"

namespace tandem::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Time kStart = absl::UnixEpoch();
constexpr char kSecret[] = "the secret of all the members";

std::string Hello() {
  std::string query;
  AppendInteger(query, StoreQuery::kValidate);
  AppendInteger(query, kStoreMagic);
  return query;
}
std::string SetQuery(const std::string& key, const std::string& value) {
  std::string query;
  AppendInteger(query, StoreQuery::kSet);
  AppendString(query, key);
  AppendString(query, value);
  return query;
}
std::string KeyQuery(StoreQuery what, const std::string& key) {
  std::string query;
  AppendInteger(query, what);
  if (what != StoreQuery::kGet) AppendInteger<uint64_t>(query, 1);
  AppendString(query, key);
  return query;
}
std::string ProofQuery(StoreQuery what, const std::string& bytes) {
  std::string query;
  AppendInteger(query, what);
  return query + bytes;
}

// Drives a store as its sockets would.
class Store {
 public:
  explicit Store(StoreLimits limits = {}, std::string secret = "")
      : protocol_(std::move(secret), limits) {}

  uint64_t Connect(absl::Time now = kStart) {
    const uint64_t id = protocol_.Connect("10.0.0.7:1", now);
    protocol_.Receive(id, Hello(), now);
    return id;
  }
  // Connects one that proves that it knows the secret.
  uint64_t ConnectMember(absl::Time now = kStart) {
    const uint64_t id = Connect(now);
    const std::string own = security::DrawSecret(kStoreProofBytes);
    const std::string its = Ask(id, ProofQuery(StoreQuery::kChallenge, own), now);
    Ask(id, ProofQuery(StoreQuery::kProve, security::Hmac(kSecret, {kStoreClient, own, its})), now);
    return id;
  }
  // Says it and reads the answer.
  std::string Ask(uint64_t id, const std::string& query, absl::Time now = kStart) {
    protocol_.Receive(id, query, now);
    std::string answer(protocol_.Output(id));
    protocol_.Sent(id, answer.size(), now);
    return answer;
  }
  // Those that have to go by `now`.
  std::vector<uint64_t> GoneBy(absl::Time now) {
    protocol_.Expire(now);
    return protocol_.TakeOver();
  }
  StoreProtocol* operator->() { return &protocol_; }

 private:
  StoreProtocol protocol_;
};

std::string Ready() { return std::string(1, static_cast<char>(kReady)); }
std::string Value(const std::string& text) {
  std::string answer;
  AppendString(answer, text);
  return answer;
}

TEST(StoreProtocol, AFloodOfValuesEndsItsConnectionAndTheStoreStaysBounded) {
  Store store;
  const uint64_t member = store.Connect();
  store.Ask(member, SetQuery("go", "yes"));
  size_t num_flooders = 0;
  uint64_t flooder = store.Connect();
  for (int i = 0; i < 250; ++i) {
    store.Ask(flooder, SetQuery("key " + std::to_string(i), std::string(kMaxStoreString, 'x')));
    if (store->TakeOver().empty()) continue;
    ++num_flooders;
    flooder = store.Connect();
  }
  EXPECT_GT(num_flooders, 0u);
  EXPECT_LE(store->stored_bytes(), StoreLimits().max_bytes);
  EXPECT_EQ(store.Ask(member, KeyQuery(StoreQuery::kGet, "go")), Value("yes"));
  // What is there may still be changed, and grows no more.
  store.Ask(member, SetQuery("go", "no"));
  EXPECT_EQ(store.Ask(member, KeyQuery(StoreQuery::kGet, "go")), Value("no"));
}

TEST(StoreProtocol, AFloodOfKeysAndAValueThatIsTooLongEndTheirConnections) {
  StoreLimits limits;
  limits.max_keys = 3;
  Store store(limits);
  const uint64_t flooder = store.Connect();
  for (int i = 0; i < 3; ++i) store.Ask(flooder, SetQuery(std::to_string(i), ""));
  EXPECT_THAT(store->TakeOver(), IsEmpty());
  store.Ask(flooder, SetQuery("3", ""));
  EXPECT_THAT(store->TakeOver(), ElementsAre(flooder));
  for (const std::string& query :
       {SetQuery("0", std::string(kMaxStoreString + 1, 'x')),
        SetQuery(std::string(kMaxStoreKey + 1, 'x'), ""),
        KeyQuery(StoreQuery::kWait, std::string(kMaxStoreKey + 1, 'x'))}) {
    const uint64_t id = store.Connect();
    store->Receive(id, query.substr(0, 32), kStart);
    EXPECT_THAT(store->TakeOver(), ElementsAre(id)) << "before the bytes came";
  }
}

TEST(StoreProtocol, WhoAsksForNothingGoesAMemberToo) {
  Store store({}, kSecret);
  const uint64_t idle = store.ConnectMember();
  const uint64_t waits = store.ConnectMember();
  const uint64_t active = store.ConnectMember();
  store.Ask(waits, KeyQuery(StoreQuery::kWait, "never"));
  const absl::Time later = kStart + kStoreIdleTime - absl::Milliseconds(1);
  EXPECT_THAT(store.GoneBy(later), IsEmpty());
  store.Ask(active, KeyQuery(StoreQuery::kCheck, "never"), later);
  EXPECT_THAT(store.GoneBy(kStart + kStoreIdleTime), ElementsAre(idle, waits));
}

TEST(StoreProtocol, StrangersAreFewAndShortLivedAndKeepNoMemberOut) {
  StoreLimits limits;
  limits.max_strangers = 10;
  Store store(limits, kSecret);
  std::vector<uint64_t> strangers;
  for (int i = 0; i < 1000; ++i) strangers.push_back(store.Connect());
  EXPECT_EQ(store->TakeOver().size(), 990u);
  const uint64_t member = store.ConnectMember();
  store.Ask(member, SetQuery("go", "yes"));
  EXPECT_EQ(store.Ask(member, KeyQuery(StoreQuery::kGet, "go")), Value("yes"));
  EXPECT_EQ(store.GoneBy(kStart + limits.proof_time).size(), 10u);
  EXPECT_EQ(store->num_clients(), 1u);
}

TEST(StoreProtocol, WhoHasComeFartherWithTheProofStaysWhileOthersCrowd) {
  StoreLimits limits;
  limits.max_strangers = 10;
  Store store(limits, kSecret);
  const uint64_t member = store.Connect();
  const std::string own = security::DrawSecret(kStoreProofBytes);
  const std::string its = store.Ask(member, ProofQuery(StoreQuery::kChallenge, own));
  for (int i = 0; i < 1000; ++i) store.Connect();
  EXPECT_EQ(store->TakeOver().size(), 991u);
  store.Ask(member,
            ProofQuery(StoreQuery::kProve, security::Hmac(kSecret, {kStoreClient, own, its})));
  store.Ask(member, SetQuery("go", "yes"));
  EXPECT_EQ(store.Ask(member, KeyQuery(StoreQuery::kGet, "go")), Value("yes"));
}

TEST(StoreProtocol, AMessageInPartIsKeptForABoundedTimeHoweverItDrips) {
  Store store;
  const StoreLimits limits;
  const uint64_t drips = store.Connect();
  const std::string query = SetQuery("key", std::string(1000, 'x'));
  for (int i = 0; i < 30; ++i) {
    const absl::Time now = kStart + i * limits.message_time / 30;
    EXPECT_THAT(store.GoneBy(now), IsEmpty()) << i;
    store->Receive(drips, query.substr(i, 1), now);
  }
  EXPECT_THAT(store.GoneBy(kStart + limits.message_time), ElementsAre(drips));
}

TEST(StoreProtocol, MessagesInPartOfAllTogetherAreBounded) {
  StoreLimits limits;
  limits.max_buffered_bytes = 10 << 20;
  Store store(limits);
  const std::string begun = SetQuery("key", std::string(kMaxStoreString, 'x')).substr(0, 1 << 20);
  for (int i = 0; i < 100; ++i) store->Receive(store.Connect(), begun, kStart);
  EXPECT_EQ(store->TakeOver().size(), 90u);
  EXPECT_LE(store->buffered_bytes(), limits.max_buffered_bytes);
}

TEST(StoreProtocol, AnswersThatAreNotReadDoNotPileUp) {
  Store store;
  const uint64_t reader = store.Connect();
  store.Ask(reader, SetQuery("key", std::string(kMaxStoreString, 'x')));
  std::string queries;
  for (int i = 0; i < 100; ++i) queries += KeyQuery(StoreQuery::kGet, "key");
  store->Receive(reader, queries, kStart);
  EXPECT_LT(store->Output(reader).size(), 3u * kMaxStoreString);
  EXPECT_FALSE(store->IsHeard(reader));
  // It gets all of them if it reads.
  size_t num_read = 0;
  while (!store->Output(reader).empty()) {
    const size_t piece = std::min<size_t>(store->Output(reader).size(), 100000);
    store->Sent(reader, piece, kStart);
    num_read += piece;
  }
  EXPECT_EQ(num_read, 100 * (sizeof(uint64_t) + kMaxStoreString));
  EXPECT_TRUE(store->IsHeard(reader));
  // And goes if it does not.
  store->Receive(reader, queries, kStart);
  EXPECT_THAT(store.GoneBy(kStart + StoreLimits().message_time), ElementsAre(reader));
}

TEST(StoreProtocol, WhereAllSeatsAreTakenTheOneThatWasIdleForLongestMakesPlace) {
  StoreLimits limits;
  limits.max_clients = 3;
  Store store(limits);
  const uint64_t waits = store.Connect();
  store.Ask(waits, KeyQuery(StoreQuery::kWait, "go"));
  const uint64_t asked_late = store.Connect();
  const uint64_t asked_early = store.Connect(kStart + absl::Seconds(1));
  store.Ask(asked_late, KeyQuery(StoreQuery::kCheck, "go"), kStart + absl::Seconds(2));
  const uint64_t next = store.Connect(kStart + absl::Seconds(3));
  EXPECT_THAT(store->TakeOver(), ElementsAre(asked_early));
  store.Ask(next, SetQuery("go", ""));
  EXPECT_EQ(store->Output(waits), Ready());
}

TEST(StoreProtocol, ANewSecretSendsEveryMemberAwayAndDropsWhatTheyStored) {
  Store store({}, "the secret of the last update");
  const uint64_t stranger = store.Connect();
  store->SetSecret(kSecret, kStart);
  const uint64_t member = store.ConnectMember();
  store.Ask(member, SetQuery("go", "yes"));
  EXPECT_GT(store->stored_bytes(), 0u);
  store->SetSecret("the secret of the next update", kStart);
  EXPECT_THAT(store->TakeOver(), ElementsAre(member));
  EXPECT_EQ(store->stored_bytes(), 0u);
  EXPECT_EQ(store->buffered_bytes(), 0u);
  EXPECT_TRUE(store->IsHeard(stranger));
}

TEST(StoreProtocol, AQueryMayComeByteByByte) {
  Store store;
  const uint64_t id = store.Connect();
  for (const char c : SetQuery("key", "value") + KeyQuery(StoreQuery::kWait, "key")) {
    store->Receive(id, std::string(1, c), kStart);
  }
  EXPECT_EQ(store->Output(id), Ready());
  EXPECT_THAT(store->TakeOver(), IsEmpty());
}

}  // namespace
}  // namespace tandem::comm
