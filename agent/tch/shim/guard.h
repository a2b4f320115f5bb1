// No exception may leave this library: every entry point runs its body through `guarded`.
#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>

namespace trainmon {

// The message if there is no memory to copy the original one. Never freed.
inline char *out_of_memory() noexcept {
  static char message[] = "out of memory while reporting an error";
  return message;
}

inline char *copy_message(const char *text) noexcept {
  char *copy = static_cast<char *>(std::malloc(std::strlen(text) + 1));
  return copy == nullptr ? out_of_memory() : std::strcpy(copy, text);
}

// Runs `body`. Returns null, or the error's text, which the caller frees with tmn_error_free.
template <class Body> char *guarded(Body &&body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const c10::Error &error) {
    return copy_message(error.what_without_backtrace());
  } catch (const std::exception &error) {
    return copy_message(error.what());
  } catch (...) {
    return copy_message("an exception of unknown type");
  }
}

} // namespace trainmon
