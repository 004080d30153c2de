#include "common/comm/link_guests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

namespace tandem::comm {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kStart = absl::UnixEpoch();

// Rank 1 of 4, which awaits ranks 2 and 3.
class LinkGuestsTest : public ::testing::Test {
 protected:
  // Returns the stranger's end.
  host::FileDescriptor Connect(absl::Time now, bool* admitted = nullptr,
                               const std::string& says = "") {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    host::FileDescriptor theirs(ends[1]);
    if (!says.empty()) Say(theirs, says);
    const bool was_admitted = guests_.Add(host::FileDescriptor(ends[0]), "10.0.0.7:1", now);
    if (admitted != nullptr) *admitted = was_admitted;
    return theirs;
  }
  static void Say(const host::FileDescriptor& fd, const std::string& bytes) {
    EXPECT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool IsClosed(const host::FileDescriptor& fd) {
    char byte;
    return recv(fd.get(), &byte, 1, 0) == 0;
  }
  std::string GreetingOf(int rank, int to = 1) {
    Greeting greeting;
    greeting.rank = rank;
    const std::string proof = LinkProof(secret_, nonce_, rank, to);
    std::copy(proof.begin(), proof.end(), greeting.proof.begin());
    return std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
  }

  const std::string secret_ = security::DrawSecret();
  const std::string nonce_ = security::DrawSecret();
  std::vector<host::FileDescriptor> links_ = std::vector<host::FileDescriptor>(4);
  LinkGuests guests_{1, secret_, nonce_, links_};
};

TEST_F(LinkGuestsTest, LetsInARankThatSpeaksAtOnceAndOneThatSpeaksBitByBit) {
  bool admitted = false;
  const host::FileDescriptor three = Connect(kStart, &admitted, GreetingOf(3));
  EXPECT_TRUE(admitted);
  EXPECT_TRUE(links_[3].is_open());

  const host::FileDescriptor two = Connect(kStart);
  const std::string greeting = GreetingOf(2);
  Say(two, greeting.substr(0, 20));
  EXPECT_FALSE(guests_.Hear(0));
  Say(two, greeting.substr(20));
  EXPECT_TRUE(guests_.Hear(0));
  EXPECT_TRUE(links_[2].is_open());
  guests_.Sweep(kStart);
  EXPECT_EQ(guests_.size(), 0u);
  EXPECT_EQ(guests_.Refused(), "");
}

TEST_F(LinkGuestsTest, RefusesWhoProvesNothingOrIsNoRankThatIsAwaited) {
  std::string forged = GreetingOf(2);
  forged.back() ^= 1;
  for (const std::string& bytes :
       {forged, GreetingOf(0), GreetingOf(1), GreetingOf(4), GreetingOf(-1), GreetingOf(2, 0),
        std::string(sizeof(Greeting), '\0'), std::string(sizeof(Greeting), '\xff')}) {
    const host::FileDescriptor stranger = Connect(kStart, nullptr, bytes);
    EXPECT_TRUE(IsClosed(stranger));
  }
  const host::FileDescriptor two = Connect(kStart, nullptr, GreetingOf(2));
  const host::FileDescriptor again = Connect(kStart, nullptr, GreetingOf(2));
  EXPECT_FALSE(IsClosed(two));
  EXPECT_TRUE(IsClosed(again));
  EXPECT_THAT(guests_.Refused(), HasSubstr("refused 9 unknown connections"));
}

TEST_F(LinkGuestsTest, KeepsABoundedNumberAndTheOldestMakesPlace) {
  std::vector<host::FileDescriptor> silent;
  for (size_t i = 0; i < kMaxGuests; ++i) silent.push_back(Connect(kStart));
  EXPECT_FALSE(IsClosed(silent.front()));
  const host::FileDescriptor next = Connect(kStart);
  EXPECT_EQ(guests_.size(), kMaxGuests);
  EXPECT_TRUE(IsClosed(silent[0]));
  EXPECT_FALSE(IsClosed(silent[1]));
  EXPECT_FALSE(IsClosed(next));
  bool admitted = false;
  const host::FileDescriptor rank = Connect(kStart, &admitted, GreetingOf(2));
  EXPECT_TRUE(admitted);
}

TEST_F(LinkGuestsTest, KeepsASilentOneForABoundedTime) {
  const host::FileDescriptor early = Connect(kStart);
  const host::FileDescriptor late = Connect(kStart + kGreetingTime / 2);
  Say(early, "a byte");
  guests_.Hear(0);
  guests_.Sweep(kStart + kGreetingTime);
  EXPECT_FALSE(IsClosed(early));
  guests_.Sweep(kStart + kGreetingTime + absl::Milliseconds(1));
  EXPECT_TRUE(IsClosed(early));
  EXPECT_FALSE(IsClosed(late));
  EXPECT_EQ(guests_.size(), 1u);
}

}  // namespace
}  // namespace tandem::comm
