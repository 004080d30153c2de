#include "tools/tandem/reward/message_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::reward {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;

class MessageSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    near_ = std::make_unique<MessageSocket>(ends[0]);
    far_ = std::make_unique<MessageSocket>(ends[1]);
    far_fd_ = ends[1];
  }
  static absl::Time InAMinute() { return absl::Now() + absl::Minutes(1); }

  std::unique_ptr<MessageSocket> near_, far_;
  int far_fd_ = -1;
};

TEST_F(MessageSocketTest, MessagesOfAnySizeArriveWhole) {
  const std::string large(5 << 20, 'x');  // more than a socket buffers
  std::thread sender([&] {
    for (const std::string& message : {std::string(), std::string("a\0b", 3), large}) {
      EXPECT_TRUE(near_->Send(message, InAMinute()).ok());
    }
  });
  EXPECT_THAT(far_->Receive(InAMinute()), IsOkAndHolds(std::string()));
  EXPECT_THAT(far_->Receive(InAMinute()), IsOkAndHolds(std::string("a\0b", 3)));
  EXPECT_THAT(far_->Receive(InAMinute()), IsOkAndHolds(large));
  sender.join();
}

TEST_F(MessageSocketTest, EveryWaitHasADeadline) {
  EXPECT_THAT(near_->Receive(absl::Now()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
  const std::string more_than_a_buffer(50 << 20, 'x');  // that nobody reads
  EXPECT_THAT(near_->Send(more_than_a_buffer, absl::Now() + absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::_));
}

TEST_F(MessageSocketTest, AClosedPeerIsUnavailable) {
  far_.reset();
  EXPECT_THAT(near_->Receive(InAMinute()), StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_THAT(near_->Send("x", InAMinute()),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
}

TEST_F(MessageSocketTest, ALengthBeyondTheLimitIsRefusedUnread) {
  ASSERT_EQ(write(far_fd_, "\xff\xff\xff\xff", 4), 4);
  EXPECT_THAT(near_->Receive(InAMinute()), StatusIs(absl::StatusCode::kDataLoss, ::testing::_));
}

}  // namespace
}  // namespace tandem::reward
