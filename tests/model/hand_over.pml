/*
 * A client with slab 0, which it may free, and slab 1, which it makes at some moment: daemons that are
 * killed or stopped at any step, attempts to hand over that are given up at any step, and the client's own death.
 * A daemon gives the lowest id that is free, so one is soon another slab's. Each step names the
 * function that does it; run.sh looks that there is one.
 *
 * Whatever happens:
 *   - no daemon punches a slab that a living client has not freed
 *   - but it does so if the client has died, and had handed over all
 *   - a request that frees a slab frees the one that the client meant
 *   - in the end the daemon has the client's slabs, with the client's ids, and no other
 *
 * Variants that must fail:
 *   PUNCH_ADOPTED     a session that ends before Recovered punches what it has adopted
 *   RECOVERED_FIRST   the client says Recovered before it has handed over all
 *   PUNCH_AT_STOP     a stop punches all slabs
 *   KEEP_DEAD         a stop keeps the slabs of clients that have died
 *   OTHER_ID          the daemon gives another id than the one that is wanted
 *   NO_IS_OF          a slab joins the client's list though the daemon that made it has gone away
 *   NO_SESSION        a slab is freed in a session that it was not handed over to
 *   NO_DEFER          a slab that is freed after it was handed over is not freed in the next session
 */
#ifndef ENDS
#define ENDS 2				/* ends of daemons */
#endif
#define HANGS 1				/* attempts that are given up though the daemon lives */
#define NONE 9

mtype = { ADOPT, NEW, FREE, RECOVERED };
chan req = [5] of { mtype, byte, byte };	/* request, id, and which slab is meant (not in the code) */
chan rep = [2] of { byte };

/* the daemon: one at a time, gen is its number */
byte gen;
bool serving, stopped;
bool open, lost, has_recovered;		/* the client's session; its end was seen */
byte slot[2];				/* which slab has the id */
bool adopted[2];

bool punched[2], freed[2], dead;

/* the client */
byte session, attempt;			/* conn_session(), conn_attempt() */
byte mine, next;			/* their daemons */
bool away, has_next;
bool list[2];				/* in the list of slabs */
byte id[2], made_in[2];		/* of each slab; the session that has it */
bool deferred;			/* to free slab 0 */

#define GONE(g) ((g) != gen)

inline punch(x)
{
	assert(freed[x] || dead);
	punched[x] = true
}

/* session_end(), session_drop_objects(), keeps_bytes(), adopt_unmake() */
#ifdef PUNCH_AT_STOP
#define GOES_ON false
#elif defined(KEEP_DEAD)
#define GOES_ON (stopped && !lost)
#else
#define GOES_ON (stopped && !lost && !dead)	/* session_client_goes_on() */
#endif
#ifdef PUNCH_ADOPTED
#define KEEPS(x) GOES_ON
#else
#define KEEPS(x) (GOES_ON || (adopted[x] && !has_recovered))
#endif
#define DROP(i) \
		if \
		:: slot[i] != NONE && !KEEPS(slot[i]) -> punch(slot[i]) \
		:: slot[i] != NONE && KEEPS(slot[i]) -> \
			assert(!dead || freed[slot[i]] || (adopted[slot[i]] && !has_recovered)) \
		:: else \
		fi; \
		slot[i] = NONE

inline flush()
{
	do
	:: nempty(req) -> req?_, _, _
	:: empty(req) -> break
	od;
	do
	:: nempty(rep) -> rep?_
	:: empty(rep) -> break
	od
}

inline end_session()
{
	DROP(0);
	DROP(1);
	open = false; lost = false; has_recovered = false; flush()
}

inline end_daemon()
{
	gen++; serving = false; stopped = false; open = false; lost = false; has_recovered = false;
	slot[0] = NONE; slot[1] = NONE; flush()
}

proctype daemon()
{
	byte n, i, x;

end:	do
	:: atomic { !serving -> serving = true }	/* start_lock_take() */
	/* session_slab_import(), id_table_add() */
	:: atomic { open && !stopped && req?[ADOPT, i, x] -> req?ADOPT, i, x;
#ifdef OTHER_ID
		i = (slot[0] == NONE -> 0 : 1);
#endif
		assert(slot[i] == NONE); slot[i] = x; adopted[x] = true; rep!i; i = 0; x = 0 }
	/* session_slab_new(), session_add() */
	:: atomic { open && !stopped && req?[NEW, i, x] -> req?NEW, i, x;
		i = (slot[0] == NONE -> 0 : 1);
		assert(slot[i] == NONE); slot[i] = x; adopted[x] = false; rep!i; i = 0; x = 0 }
	/* session_slab_free() */
	:: atomic { open && !stopped && req?[FREE, i, x] -> req?FREE, i, x;
		if
		:: slot[i] == NONE
		:: else -> assert(slot[i] == x); punch(x); slot[i] = NONE
		fi;
		i = 0; x = 0 }
	:: atomic { open && !stopped && req?[RECOVERED, i, x] -> req?RECOVERED, i, x;	/* serve_recovered() */
		has_recovered = true; i = 0; x = 0 }
	:: atomic { serving && n < ENDS -> n++; end_daemon() }
	:: atomic { serving && !stopped && n < ENDS -> n++; stopped = true }	/* server_stop() */
	:: atomic { open && (lost || dead) -> lost = true; end_session() }	/* connection_lost() */
	:: atomic { open && stopped -> end_session() }
	:: atomic { stopped && !open -> end_daemon() }	/* session_advance(), service_close_socket() */
	od
}

/* ---- the thread of recover.c ---- */

#define MUST_HAND_OVER(x) (list[x] && made_in[x] != attempt)

proctype recovery()
{
	bool waits, has_said;
	byte n;

end:	do
	:: dead -> break
	:: atomic { !dead && !away && GONE(mine) -> away = true }	/* conn_is_gone(), go_away() */
	/* conn_open_again(), conn_attempt_begin() */
	:: atomic { !dead && away && !has_next && serving && !stopped && !open ->
		open = true; has_next = true; next = gen; attempt++;
		deferred = false
#ifdef RECOVERED_FIRST
		; req!RECOVERED, 0, 0
#endif
		}
	/* buffers_hand_over(), slab_hand_over() */
	:: atomic { !dead && has_next && !waits && !GONE(next) && MUST_HAND_OVER(0) ->
		made_in[0] = attempt; waits = true; req!ADOPT, id[0], 0 }
	:: atomic { !dead && has_next && !waits && !GONE(next) && !MUST_HAND_OVER(0) && MUST_HAND_OVER(1) ->
		made_in[1] = attempt; waits = true; req!ADOPT, id[1], 1 }
	:: atomic { !dead && waits && !GONE(next) && nempty(rep) -> rep?_; waits = false }
	/* take_over(), conn_close(): the daemon is at its end, stops, or hangs */
	:: atomic { !dead && has_next && (GONE(next) || stopped || n < HANGS) ->
		if
		:: GONE(next)
		:: !GONE(next) -> lost = true; n = n + !stopped
		fi;
		has_next = false; waits = false; next = 0 }
	/* come_back(), conn_replace(): deferred requests go out; post_report() */
	:: atomic { !dead && has_next && !waits && !MUST_HAND_OVER(0) && !MUST_HAND_OVER(1) ->
		session = attempt; mine = next; away = false; has_next = false; next = 0; has_said = false;
		if
		:: deferred && !GONE(mine) -> req!FREE, id[0], 0
		:: else
		fi;
		deferred = false }
	:: atomic { !dead && !away && session && !has_said ->
		has_said = true;
		if
		:: !GONE(mine) -> req!RECOVERED, 0, 0
		:: else
		fi }
	od
}

/* ---- threads of the program ---- */

proctype freeing()		/* buffers_free(), slab_release() */
{
	byte was;

	if
	:: atomic { !dead -> list[0] = false; freed[0] = true; was = made_in[0] };
		/* conn_post_in(), defer_post() */
#ifdef NO_SESSION
#define IS_OF(s) true
#else
#define IS_OF(s) ((s) == session)
#endif
		atomic {
			if
			:: dead
			:: !dead && !away && IS_OF(was) ->
				if
				:: !GONE(mine) -> req!FREE, id[0], 0
				:: else		/* into a closed socket */
				fi
#ifdef NO_DEFER
			:: else
#else
			:: !dead && away && was == attempt -> deferred = true
			:: else
#endif
			fi }
	:: true
	fi
}

proctype making()		/* buffers_grow(), conn_call(), buffers_add() */
{
	byte answered;

	if
	:: true -> goto over
	:: true
	fi;
again:	atomic { dead || (!away && !GONE(mine)) ->
		if
		:: dead -> goto over
		:: else -> req!NEW, 0, 1; answered = session
		fi };
	if
	:: atomic { !dead && !away && !GONE(mine) && session == answered && nempty(rep) -> rep?id[1] }
	:: atomic { dead || GONE(mine) || away || session != answered -> goto again }
	fi;
	atomic {
		if
		:: dead
#ifdef NO_IS_OF
		:: !dead -> list[1] = true; made_in[1] = answered
#else
		:: !dead && session == answered && !away -> list[1] = true; made_in[1] = answered	/* conn_is_of() */
		:: else -> goto again
#endif
		fi };
over:	skip
}

proctype death()			/* connection_has_peer() */
{
	if
	:: atomic { !dead -> dead = true }
	:: true
	fi
}

/* All is quiet: nothing was left behind, and nothing lost. */
proctype end_check()
{
end:	atomic { timeout ->
		assert(dead || (!away && mine == gen && has_recovered == (session > 0)));
		assert(dead || !list[0] || slot[id[0]] == 0);
		assert(dead || !list[1] || slot[id[1]] == 1);
		assert(dead || slot[0] == NONE || list[slot[0]]);
		assert(dead || slot[1] == NONE || list[slot[1]]) }
}

init
{
	d_step { serving = true; open = true; slot[0] = 0; slot[1] = NONE; list[0] = true };
	atomic { run daemon(); run recovery(); run freeing(); run making(); run death(); run end_check() }
}
