// Memory of one call: containers over a server memory context.
//
// `call_context` is the context in which the call was entered; the inward guard sets it. Containers use it by default, and
// not CurrentMemoryContext, because between SPI_connect and SPI_finish that is a context which dies with SPI_finish.
#pragma once

#include <boost/container/small_vector.hpp>
#include <boost/container/string.hpp>
#include <boost/container/vector.hpp>
#include <cstddef>
#include <new>

#include "pg/postgres.hpp"

namespace ratelimit::pg {

extern MemoryContext call_context;

// Throws bad_alloc instead of raising, so it may stand above any frame. pfree of a chunk that we got cannot raise.
template <typename T>
class ContextAllocator {
public:
	using value_type = T;

	ContextAllocator() noexcept : context_(call_context) {}
	explicit ContextAllocator(MemoryContext context) noexcept : context_(context) {}
	template <typename U>
	ContextAllocator(const ContextAllocator<U> &other) noexcept : context_(other.context())
	{
	}

	[[nodiscard]] T *allocate(std::size_t count)
	{
		if (count > MaxAllocHugeSize / sizeof(T))
			throw std::bad_alloc();
		void *chunk =
			MemoryContextAllocExtended(context_, count * sizeof(T), MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
		if (chunk == nullptr)
			throw std::bad_alloc();
		return static_cast<T *>(chunk);
	}
	void deallocate(T *chunk, std::size_t) noexcept { pfree(chunk); }

	[[nodiscard]] MemoryContext context() const noexcept { return context_; }

	friend bool operator==(const ContextAllocator &a, const ContextAllocator &b) noexcept
	{
		return a.context_ == b.context_;
	}
	friend bool operator!=(const ContextAllocator &a, const ContextAllocator &b) noexcept { return !(a == b); }

private:
	MemoryContext context_;
};

template <typename T>
using Vector = boost::container::vector<T, ContextAllocator<T>>;

using String = boost::container::basic_string<char, std::char_traits<char>, ContextAllocator<char>>;

// The first `inline_count` elements need no allocation: most calls name one limit.
template <typename T, std::size_t inline_count>
using SmallVector = boost::container::small_vector<T, inline_count, ContextAllocator<T>>;

// Makes `context` the current one for a block.
class ContextScope {
public:
	explicit ContextScope(MemoryContext context) noexcept : outer_(MemoryContextSwitchTo(context)) {}
	~ContextScope() { MemoryContextSwitchTo(outer_); } // an assignment: cannot raise
	ContextScope(const ContextScope &) = delete;
	ContextScope &operator=(const ContextScope &) = delete;

private:
	MemoryContext outer_;
};

// Memory for one round of a long call: while it stands, containers and server calls allocate there. Freed with the call, or
// by reset() between two rounds; an error that happened in the round lives there too.
class RoundMemory {
public:
	RoundMemory();
	void reset();
	~RoundMemory() { leave(); }
	RoundMemory(const RoundMemory &) = delete;
	RoundMemory &operator=(const RoundMemory &) = delete;

	void enter() noexcept;
	void leave() noexcept; // assignments: cannot raise
	// The memory of the call itself, for what outlives the round.
	[[nodiscard]] MemoryContext outer() const noexcept { return outer_call_; }

private:
	MemoryContext context_;
	MemoryContext outer_call_;
	MemoryContext outer_current_ = nullptr;
};

} // namespace ratelimit::pg
