// Which sessions are open.
#include "services/rollout/sessions/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kId[] = "0123456789abcdef";

class SessionStoreTest : public ::testing::Test {
 protected:
  SessionStoreTest() {
    request_.set_session_id(kId);
    store_.SetEndpoint("127.0.0.1:8000");
  }
  absl::StatusOr<std::string> Open(const std::string& authority = "rollout:5000") {
    return store_.Open(request_, limits_, authority);
  }

  const RequestLimits limits_ = {.vocab_size = 100, .max_model_len = 64, .has_tokenizer = true};
  v1::OpenSessionRequest request_;
  SessionStore store_{{.max_sessions = 2}};
};

TEST_F(SessionStoreTest, FindsASessionUntilItIsClosed) {
  EXPECT_EQ(store_.Find(kId), nullptr);
  EXPECT_THAT(Open(), IsOkAndHolds("http://127.0.0.1:8000/v1"));
  EXPECT_THAT(Open(), IsOkAndHolds("http://127.0.0.1:8000/v1"));  // repeated
  const auto session = store_.Find(kId);
  ASSERT_NE(session, nullptr);
  ASSERT_OK(store_.Close(kId).status());
  EXPECT_EQ(store_.Find(kId), nullptr);
  EXPECT_FALSE(session->CheckOpen().ok());
  EXPECT_THAT(store_.Close(kId).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("closed")));
}

TEST_F(SessionStoreTest, AnEndpointOnAllAddressesIsReachedAsTheServerIs) {
  store_.SetEndpoint("0.0.0.0:8000");
  EXPECT_THAT(Open("rollout-0.example:5000"), IsOkAndHolds("http://rollout-0.example:8000/v1"));
  store_.SetEndpoint("[::]:8000");
  EXPECT_THAT(Open("[fd00::7]:5000"), IsOkAndHolds("http://[fd00::7]:8000/v1"));
  EXPECT_THAT(Open("unix:/tmp/socket"), IsOkAndHolds("http://127.0.0.1:8000/v1"));
}

TEST_F(SessionStoreTest, WithoutAnEndpointThereAreNoSessions) {
  store_.SetEndpoint("");
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--openai-listen")));
}

TEST_F(SessionStoreTest, ExpertsOfAModelWithoutThemAreRefused) {
  request_.set_return_routed_experts(true);
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("return_routed_experts")));
}

TEST_F(SessionStoreTest, AnIdIsOneSessions) {
  ASSERT_OK(Open().status());
  request_.set_max_tokens(3);
  EXPECT_THAT(Open().status(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("other")));
}

TEST_F(SessionStoreTest, AnExpiredSessionMakesRoom) {
  request_.mutable_duration()->set_nanos(1);
  ASSERT_OK(Open().status());
  EXPECT_EQ(store_.Find(kId), nullptr);
  request_.mutable_duration()->set_seconds(60);
  for (const char* id : {"first-0123456789", "second-0123456789"}) {
    request_.set_session_id(id);
    ASSERT_OK(Open().status());
  }
  request_.set_session_id("third-0123456789");
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 sessions are open")));
}

TEST_F(SessionStoreTest, MalformedRequestsNameTheField) {
  struct Case {
    std::function<void(v1::OpenSessionRequest&)> change;
    const char* says;
  };
  using Request = v1::OpenSessionRequest;
  for (const Case& c :
       {Case{[](Request& r) { r.set_session_id("short"); }, "session_id: expected 16 to 128"},
        Case{[](Request& r) { r.set_session_id("with a space 0123"); }, "session_id: expected"},
        Case{[](Request& r) { r.set_session_id(std::string(129, 'x')); }, "session_id: expected"},
        Case{[](Request& r) { r.mutable_sampling()->set_temperature(-1); },
             "temperature: expected"},
        Case{[](Request& r) { r.mutable_sampling()->set_top_p(0); }, "top_p: expected"},
        Case{[](Request& r) { r.mutable_sampling()->set_presence_penalty(1); },
             "sampling: expected temperature"},
        Case{[](Request& r) { r.mutable_sampling()->set_n(2); }, "sampling: expected temperature"},
        Case{[](Request& r) { r.set_max_tokens(-1); }, "max_tokens: expected >= 0"},
        Case{[](Request& r) { r.set_max_length(-1); }, "max_length: expected >= 0"},
        Case{[](Request& r) { r.set_incarnation(-1); }, "incarnation"},
        Case{[](Request& r) { r.mutable_duration()->set_seconds(86401); }, "duration: expected"}}) {
    v1::OpenSessionRequest request = request_;
    c.change(request);
    EXPECT_THAT(store_.Open(request, limits_, "").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.says)));
  }
}

}  // namespace
}  // namespace tandem::rollout
